#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "core/inspection.h"
#include "data/segment.h"
#include "inspect/gate_summary.h"
#include "models/model.h"

namespace mnemo::inspect {

/// One head's weights, of the first sequence.
struct HeadMap {
  int64_t layer = 0, head = 0;
  std::string name;  ///< "attention", or what the mechanism calls it
  core::MapAxis rows, columns;
  at::Tensor weights;    ///< [R,C] float64
  at::Tensor past = {};  ///< [R]: from rows that are no column any more; undefined = none
};

/// Where the queries of one kind of rows look on average: shares of the kinds of keys, which sum to 1. Weights that are
/// no softmax may be of any sign and sum; there a share is of the sum of their absolute values.
struct HeadShare {
  int64_t layer = 0, head = 0;
  std::string from;
  std::vector<std::pair<std::string, double>> to;
};

/// What the attentions of a model did with one segment of an input.
struct AttentionSummary {
  int64_t segment = 0, num_segments = 0;  ///< its number from 1
  std::vector<std::string> words;         ///< of its tokens
  core::AttendTable table;
  int64_t compressed = 0;  ///< rows at the start of the cache that are compressed ones
  std::vector<HeadMap> maps = {};
  std::vector<HeadShare> shares = {};
  std::vector<GateSpread> gates = {};
};

/// Which layers, heads and segment of an input are looked at; unset: all layers and heads, the last segment. Segments
/// count from 1.
struct AttentionChoice {
  std::optional<std::string> layers, heads;
  std::optional<int64_t> segment;
};

/// "0,2-4" -> 0 2 3 4. Throws InputError naming `what` unless all lie in 0 .. count - 1.
std::vector<int64_t> chosen_numbers(const std::string& text, int64_t count, const std::string& what);

/// Runs an input of one sequence through the model. `words` are its tokens for people, segment by segment.
/// Throws InputError for a choice out of range, and where no attention of the model gives a map.
AttentionSummary look_at_attention(const models::Model& model, const std::vector<data::TokenSegment>& input,
                                   const std::vector<std::vector<std::string>>& words, const AttentionChoice& choice);

/// The rows or columns of a map for people: "read 0", words of tokens, "slot 3".
std::vector<std::string> labels_of(const AttentionSummary& facts, core::MapAxis axis, int64_t count);
/// Kind of a span for people: that of the table, and "compressed" for the compressed rows of a cache.
std::string kind_of(const core::Span& span);
inline constexpr int64_t kCompressed = 1;  ///< tag of their span
/// The spans that rows or columns of a map fall into; one of kind tokens for slots and caches.
std::vector<core::Span> spans_of(const AttentionSummary& facts, core::MapAxis axis, int64_t count);

std::string to_text(const AttentionSummary& facts);
base::Node to_node(const AttentionSummary& facts);
/// Tables for a page; the picture stands beside them.
std::string to_html(const AttentionSummary& facts);

/// Scalars of a training: what log.jsonl says of each step.
struct ScalarPoint {
  int64_t step = 0;
  std::vector<core::Scalar> scalars;
};
/// Of a run's folder; empty where there is no log or it has no scalars.
std::vector<ScalarPoint> read_scalars(const std::string& run_folder);
/// First, last and some points between, a row a scalar and head.
std::string to_text(const std::vector<ScalarPoint>& points);
base::Node to_node(const std::vector<ScalarPoint>& points);

}  // namespace mnemo::inspect
