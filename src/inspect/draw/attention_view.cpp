#include "inspect/draw/attention_view.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include "base/base64.h"
#include "inspect/draw/canvas.h"

namespace mnemo::inspect {
namespace {

std::string half_text(const at::Tensor& values) {
  const at::Tensor halves = values.clamp(-65504.0, 65504.0).to(at::kHalf).contiguous();
  return base::to_base64({static_cast<const char*>(halves.const_data_ptr()), halves.nbytes()});
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

void note_left_out(page::Document& page, const base::Node& view) {
  const int64_t left_out = view.at("left_out").as_int();
  if (left_out == 0) return;
  page.add(
      fmt::format("<p class=\"note\">{} more maps are left out, which would make the page too large; choose others "
                  "with --layers and --heads.</p>\n",
                  left_out),
      "a note");
}

}  // namespace

base::Node attention_view(const InputAttention& input, size_t max_bytes) {
  base::Node axes = base::Node::array(), maps = base::Node::array();
  const auto axis = [&](const AttentionSummary& facts, int64_t layer, core::MapAxis of, int64_t count) {
    base::Node node = axis_node(facts, layer, of, count);
    const auto& known = axes.items();
    const auto found = std::find(known.begin(), known.end(), node);
    const auto index = found - known.begin();
    if (found == known.end()) axes.push_back(std::move(node));
    return static_cast<int64_t>(index);
  };
  size_t bytes = 0, left_out = 0;
  const auto add = [&](const AttentionSummary& facts) {
    for (const HeadMap& map : facts.maps) {
      bytes += text_bytes(map);
      if (bytes > max_bytes) {
        ++left_out;
        continue;
      }
      base::Node node = base::Node::table(
          {{"segment", facts.segment}, {"layer", map.layer}, {"head", map.head}, {"name", map.name}});
      node.set("rows", axis(facts, map.layer, map.rows, map.weights.size(0)));
      node.set("columns", axis(facts, map.layer, map.columns, map.weights.size(1)));
      node.set("weights", half_text(map.weights));
      if (map.past.defined()) node.set("past", half_text(map.past));
      maps.push_back(std::move(node));
    }
  };
  add(input.shown());
  for (const AttentionSummary& facts : input.segments) {
    if (&facts != &input.shown()) add(facts);
  }
  return base::Node::table({{"segment", input.shown().segment},
                            {"num_segments", input.shown().num_segments},
                            {"axes", std::move(axes)},
                            {"maps", std::move(maps)},
                            {"left_out", static_cast<int64_t>(left_out)}});
}

void add_attention_view(page::Document& page, const InputAttention& input) {
  const base::Node view = attention_view(input);
  page.add(
      "<h3>On the text</h3>\n<p>Point at a token or a row of memory, or reach it with Tab and the arrow keys: the "
      "other "
      "side shows where its attention goes, or which rows look at it. Click to hold it.</p>\n"
      "<div id=\"attention-view\"><noscript>This needs JavaScript.</noscript></div>\n",
      "attention on the text");
  note_left_out(page, view);
  const int64_t first = input.segments.front().segment, last = input.segments.back().segment;
  if (last - first + 1 < input.shown().num_segments)
    page.add(fmt::format("<p class=\"note\">The page has segments {} to {} of {}; choose another with --segment.</p>\n",
                         first, last, input.shown().num_segments),
             "a note");
  if (page.add_data("attention", view, "attention on the text")) page.use("attention.js");
}

base::Node image_view(const ImageAttention& facts, size_t max_bytes) {
  Raster picture{facts.picture.width, facts.picture.height, {}};
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) {
      const uint8_t* dot = facts.picture.at(y, x);
      picture.dots.push_back({dot[0], dot[1], dot[2]});
    }
  }
  base::Node maps = base::Node::array();
  size_t bytes = 0, left_out = 0;
  for (const ImageLayer& layer : facts.layers) {
    for (const ImageLook& look : layer.looks) {
      for (int64_t head = -1; head < look.weights.size(0); ++head) {
        const at::Tensor weights = of_head(look.weights, head);
        bytes += static_cast<size_t>(weights.numel()) * 8 / 3 + 200;
        if (bytes > max_bytes) {
          ++left_out;
          continue;
        }
        maps.push_back(base::Node::table({{"from", look.from},
                                          {"layer", layer.layer},
                                          {"head", head},
                                          {"height", weights.size(0)},
                                          {"width", weights.size(1)},
                                          {"weights", half_text(weights)}}));
      }
    }
  }
  return base::Node::table({{"picture", base::to_base64(png_of(picture))},
                            {"maps", std::move(maps)},
                            {"left_out", static_cast<int64_t>(left_out)}});
}

void add_image_view(page::Document& page, const ImageAttention& facts) {
  const base::Node view = image_view(facts);
  page.add("<h3>On the image</h3>\n<div id=\"image-view\"><noscript>This needs JavaScript.</noscript></div>\n",
           "attention on the image");
  note_left_out(page, view);
  if (page.add_data("image-attention", view, "attention on the image")) page.use("image.js");
}

}  // namespace mnemo::inspect
