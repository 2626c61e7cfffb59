#include "inspect/attention_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/file_io.h"
#include "base/json_value.h"
#include "base/text_format.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

using core::MapAxis;

/// The spans of all keys, contexts first; the compressed rows of a cache have a span of their own.
std::vector<core::Span> key_spans(const LayerMask& mask) {
  std::vector<core::Span> spans;
  int64_t compressed = mask.compressed;
  for (core::Span span : mask.table.contexts()) {
    if (span.kind == core::SpanKind::cache && compressed > 0) {
      spans.push_back({span.kind, std::min(compressed, span.length), kCompressed});
      span.length -= spans.back().length;
      compressed = 0;
    }
    spans.push_back(span);
  }
  if (!mask.table.is_cross()) spans.insert(spans.end(), mask.table.rows().begin(), mask.table.rows().end());
  return spans;
}

const char* axis_name(MapAxis axis) {
  switch (axis) {
    case MapAxis::queries:
      return "queries";
    case MapAxis::keys:
      return "keys";
    case MapAxis::slots:
      return "slots";
    case MapAxis::cache:
      return "cache";
  }
  return "";
}

/// Kinds of keys in order of first appearance.
std::vector<std::string> kinds_of(const AttentionSummary& facts) {
  std::vector<std::string> kinds;
  for (const HeadShare& share : facts.shares) {
    for (const auto& [kind, value] : share.to) {
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
  }
  return kinds;
}

page::Table share_cells(const AttentionSummary& facts) {
  page::Table cells{{"layer", "head", "from"}, {}};
  const std::vector<std::string> kinds = kinds_of(facts);
  for (const std::string& kind : kinds) cells.header.push_back("to " + kind);
  for (const HeadShare& share : facts.shares) {
    std::vector<std::string> row = {std::to_string(share.layer), std::to_string(share.head), share.from};
    for (const std::string& kind : kinds) {
      const auto found = std::find_if(share.to.begin(), share.to.end(),
                                      [&](const auto& to) { return to.first == kind; });
      row.push_back(found == share.to.end() ? "" : page::share_text(found->second));
    }
    cells.rows.push_back(std::move(row));
  }
  return cells;
}

std::string where_text(const AttentionSummary& facts) {
  return fmt::format("segment {} of {}, {}", facts.segment, facts.num_segments,
                     base::counted(static_cast<int64_t>(facts.words.size()), "token"));
}

}  // namespace

std::string kind_of(const core::Span& span) {
  if (span.kind == core::SpanKind::cache && span.tag == kCompressed) return "compressed";
  const bool tokens = span.kind == core::SpanKind::tokens;
  if (tokens && span.tag == core::kSeparatorRow) return "separator";
  return std::string(core::name(tokens && span.tag == core::kClassRow ? core::SpanKind::class_token : span.kind));
}

std::vector<core::Span> spans_of(const LayerMask& mask, MapAxis axis, int64_t count) {
  if (axis == MapAxis::queries) return mask.table.rows();
  if (axis == MapAxis::keys && count == mask.table.num_keys()) return key_spans(mask);
  return {{core::SpanKind::tokens, count}};
}

std::vector<std::string> labels_of(const AttentionSummary& facts, int64_t layer, MapAxis axis, int64_t count) {
  std::vector<std::string> labels;
  if (axis == MapAxis::slots || axis == MapAxis::cache) {
    for (int64_t i = 0; i < count; ++i)
      labels.push_back(fmt::format("{} {}", axis == MapAxis::slots ? "slot" : "row", i));
    return labels;
  }
  const LayerMask& mask = facts.masks.at(layer);
  const std::vector<core::Span> spans = spans_of(mask, axis, count);
  int64_t before = axis == MapAxis::keys ? mask.table.num_context() : 0;  // rows to the left of the contexts
  for (const core::Span& span : spans) {
    const bool own = before <= 0 && span.kind == core::SpanKind::tokens && span.tag == 0 &&
                     span.length == static_cast<int64_t>(facts.words.size());
    before -= span.length;
    for (int64_t i = 0; i < span.length; ++i) {
      labels.push_back(own ? facts.words[static_cast<size_t>(i)] : fmt::format("{} {}", kind_of(span), i));
    }
  }
  return labels;
}

std::string to_text(const AttentionSummary& facts) {
  std::string text = fmt::format("Attention of {}: share of each kind of row, averaged over the queries of a kind\n{}",
                                 where_text(facts), page::text_of(share_cells(facts)));
  return facts.gates.empty() ? text : text + "\n" + to_text(facts.gates);
}

base::Node to_node(const AttentionSummary& facts) {
  const auto numbers = [](const at::Tensor& row) {
    base::Node node = base::Node::array();
    for (int64_t i = 0; i < row.numel(); ++i) node.push_back(base::rounded(row.const_data_ptr<double>()[i]));
    return node;
  };
  const auto words = [](const std::vector<std::string>& list) {
    base::Node node = base::Node::array();
    for (const std::string& word : list) node.push_back(word);
    return node;
  };
  const auto spans_node = [](const LayerMask& mask) {
    base::Node spans = base::Node::array();
    for (const core::Span& span : key_spans(mask))
      spans.push_back(base::Node::table({{"kind", kind_of(span)}, {"length", span.length}}));
    return spans;
  };
  base::Node maps = base::Node::array(), shares = base::Node::array();
  for (const HeadMap& map : facts.maps) {
    base::Node weights = base::Node::array();
    for (int64_t row = 0; row < map.weights.size(0); ++row) weights.push_back(numbers(map.weights[row]));
    base::Node node = base::Node::table({{"layer", map.layer},
                                         {"head", map.head},
                                         {"name", map.name},
                                         {"rows", axis_name(map.rows)},
                                         {"columns", axis_name(map.columns)},
                                         {"weights", weights}});
    if (map.past.defined()) node.set("past", numbers(map.past));
    if (map.columns == MapAxis::keys) node.set("keys", spans_node(facts.masks.at(map.layer)));
    maps.push_back(std::move(node));
  }
  for (const HeadShare& share : facts.shares) {
    base::Node to = base::Node::table();
    for (const auto& [kind, value] : share.to) to.set(kind, base::rounded(value));
    shares.push_back(
        base::Node::table({{"layer", share.layer}, {"head", share.head}, {"from", share.from}, {"to", to}}));
  }
  const auto& [first, mask] = *facts.masks.begin();
  return base::Node::table({{"segment", facts.segment},
                            {"num_segments", facts.num_segments},
                            {"tokens", words(facts.words)},
                            {"keys", spans_node(mask)},
                            {"queries", words(labels_of(facts, first, MapAxis::queries, mask.table.num_rows()))},
                            {"shares", shares},
                            {"gates", to_node(facts.gates)},
                            {"maps", maps}});
}

std::string to_html(const InputAttention& input) {
  std::string html;
  for (const AttentionSummary& facts : input.segments) {
    html += fmt::format(
        "<div data-segment=\"{}\"{}>\n<p>Attention of {}: share of each kind of row, averaged over the queries of a "
        "kind.</p>\n{}{}</div>\n",
        facts.segment, &facts == &input.shown() ? "" : " hidden", where_text(facts), page::html_of(share_cells(facts)),
        to_html(facts.gates));
  }
  return html;
}

std::vector<ScalarPoint> read_scalars(const std::string& run_folder) {
  const std::string path = base::join_path(run_folder, "log.jsonl");
  std::vector<ScalarPoint> points;
  if (!base::path_exists(path)) return points;
  const std::string log = base::read_file(path);
  int64_t number = 0;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string_view text = std::string_view(log).substr(begin, end - begin);
    const bool whole = end < log.size();  // the last line of a run in progress may be incomplete
    begin = end + 1;
    if (!whole) break;
    const base::Node line = base::parse_json(text, path, {}, ++number);
    const base::Node* scalars = line.find("gauges");
    const base::Node* step = line.find("step");
    if (scalars == nullptr || !scalars->is_table() || step == nullptr || !step->is_int()) continue;
    ScalarPoint point{step->as_int(), {}};
    for (const auto& [name, values] : scalars->members()) {
      core::Scalar scalar{name, {}};
      for (const base::Node& value : values.items()) scalar.values.push_back(value.is_null() ? NAN : value.as_double());
      point.scalars.push_back(std::move(scalar));
    }
    points.push_back(std::move(point));
  }
  return points;
}

bool has_heads(const core::Scalar& scalar) { return !scalar.name.starts_with("loss."); }

ScalarPoint scalars_at(int64_t step, const std::vector<CacheShare>& shares) {
  ScalarPoint point{step, {}};
  for (const CacheShare& share : shares) point.scalars.push_back({share.layer, share.heads});
  return point;
}

std::string to_text(const std::vector<ScalarPoint>& points) {
  constexpr size_t kColumns = 7;
  std::vector<size_t> shown;
  for (size_t i = 0; i < std::min(kColumns, points.size()); ++i) {
    shown.push_back(points.size() <= kColumns ? i : i * (points.size() - 1) / (kColumns - 1));
  }
  page::Table cells{{"gauge", "head"}, {}};
  for (const size_t i : shown) cells.header.push_back(fmt::format("step {}", points[i].step));
  for (size_t g = 0; g < points.front().scalars.size(); ++g) {
    for (size_t head = 0; head < points.front().scalars[g].values.size(); ++head) {
      const core::Scalar& scalar = points.front().scalars[g];
      std::vector<std::string> row = {scalar.name, has_heads(scalar) ? std::to_string(head) : ""};
      for (const size_t i : shown) {
        const bool there = g < points[i].scalars.size() && head < points[i].scalars[g].values.size();
        row.push_back(there ? fmt::format("{:.3f}", points[i].scalars[g].values[head]) : "");
      }
      cells.rows.push_back(std::move(row));
    }
  }
  return "Over training:\n" + page::text_of(cells);
}

std::string to_html(const std::vector<ScalarPoint>& points) {
  const bool steps = points.size() > 1;
  page::Table table{{"scalar", "head", "value"}, {}, 1};
  if (steps) table.header.insert(table.header.begin(), "step");
  for (const ScalarPoint& point : points) {
    for (const core::Scalar& scalar : point.scalars) {
      for (size_t head = 0; head < scalar.values.size(); ++head) {
        std::vector<std::string> row = {scalar.name, has_heads(scalar) ? std::to_string(head) : "",
                                        fmt::format("{:.6g}", scalar.values[head])};
        if (steps) row.insert(row.begin(), std::to_string(point.step));
        table.rows.push_back(std::move(row));
      }
    }
  }
  return page::folded(table, "the numbers");
}

base::Node to_node(const std::vector<ScalarPoint>& points) {
  base::Node node = base::Node::array();
  for (const ScalarPoint& point : points) {
    base::Node scalars = base::Node::table();
    for (const core::Scalar& scalar : point.scalars) {
      base::Node values = base::Node::array();
      for (const double value : scalar.values) values.push_back(base::json_number(value));
      scalars.set(scalar.name, values);
    }
    node.push_back(base::Node::table({{"step", point.step}, {"gauges", scalars}}));
  }
  return node;
}

}  // namespace mnemo::inspect
