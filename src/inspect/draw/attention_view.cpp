#include "inspect/draw/attention_view.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include "inspect/draw/canvas.h"

namespace mnemo::inspect {
namespace {

std::string half_text(const at::Tensor& values) {
  const at::Tensor halves = values.clamp(-65504.0, 65504.0).to(at::kHalf).contiguous();
  return base64_of({static_cast<const char*>(halves.const_data_ptr()), halves.nbytes()});
}

size_t text_bytes(const HeadMap& map) {
  const int64_t values = map.weights.numel() + (map.past.defined() ? map.past.numel() : 0);
  return static_cast<size_t>(values) * 8 / 3 + 200;
}

base::Node axis_node(const AttentionSummary& facts, int64_t layer, core::MapAxis axis, int64_t count) {
  base::Node labels = base::Node::array(), spans = base::Node::array();
  for (const std::string& label : labels_of(facts, layer, axis, count)) labels.push_back(label);
  const bool rows_of_memory = axis == core::MapAxis::slots || axis == core::MapAxis::cache;
  for (const core::Span& span : spans_of(facts.masks.at(layer), axis, count)) {
    const std::string kind = rows_of_memory ? (axis == core::MapAxis::slots ? "slots" : "cache") : kind_of(span);
    // Rows of tokens that are not this segment's have no words: keys of earlier segments.
    if (span.length > 0) spans.push_back(base::Node::table({{"kind", kind}, {"length", span.length}}));
  }
  return base::Node::table({{"labels", std::move(labels)}, {"spans", std::move(spans)}});
}

}  // namespace

base::Node attention_view(const AttentionSummary& facts, size_t max_bytes) {
  base::Node axes = base::Node::array(), maps = base::Node::array();
  const auto axis = [&](int64_t layer, core::MapAxis of, int64_t count) {
    base::Node node = axis_node(facts, layer, of, count);
    const auto& known = axes.items();
    const auto found = std::find(known.begin(), known.end(), node);
    const auto index = found - known.begin();
    if (found == known.end()) axes.push_back(std::move(node));
    return static_cast<int64_t>(index);
  };
  size_t bytes = 0, left_out = 0;
  for (const HeadMap& map : facts.maps) {
    bytes += text_bytes(map);
    if (bytes > max_bytes) {
      ++left_out;
      continue;
    }
    base::Node node = base::Node::table({{"layer", map.layer}, {"head", map.head}, {"name", map.name}});
    node.set("rows", axis(map.layer, map.rows, map.weights.size(0)));
    node.set("columns", axis(map.layer, map.columns, map.weights.size(1)));
    node.set("weights", half_text(map.weights));
    if (map.past.defined()) node.set("past", half_text(map.past));
    maps.push_back(std::move(node));
  }
  return base::Node::table(
      {{"axes", std::move(axes)}, {"maps", std::move(maps)}, {"left_out", static_cast<int64_t>(left_out)}});
}

void add_attention_view(page::Document& page, const AttentionSummary& facts) {
  const base::Node view = attention_view(facts);
  page.add(
      "<h3>On the text</h3>\n<p>Point at a token or a row of memory, or reach it with Tab and the arrow keys: the "
      "other "
      "side shows where its attention goes, or which rows look at it. Click to hold it.</p>\n"
      "<div id=\"attention-view\"><noscript>This needs JavaScript.</noscript></div>\n",
      "attention on the text");
  if (const int64_t left_out = view.at("left_out").as_int(); left_out > 0)
    page.add(
        fmt::format("<p class=\"note\">{} more maps are left out, which would make the page too large; choose others "
                    "with --layers and --heads.</p>\n",
                    left_out),
        "a note");
  if (page.add_data("attention", view, "attention on the text")) page.use("attention.js");
}

}  // namespace mnemo::inspect
