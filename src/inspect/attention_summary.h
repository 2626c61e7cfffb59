#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "core/inspection.h"
#include "core/spans.h"
#include "data/batch.h"
#include "inspect/attention_record.h"
#include "inspect/cache_share.h"
#include "inspect/gate_summary.h"

namespace mnemo::models {
class TextModel;
}

namespace mnemo::inspect {

/// One head's weights, for the first sequence.
struct HeadMap {
  int64_t layer = 0, head = 0;
  std::string name;  ///< "attention", or the mechanism's own name
  core::MapAxis rows, columns;
  at::Tensor weights;    ///< [R,C] float64
  at::Tensor past = {};  ///< [R]: weight on rows that are no longer columns; undefined = none
};

/// Average attention of one kind of query row: its share per kind of key, summing to 1. If the weights are not a
/// softmax, they may have any sign and sum; shares are then taken of the sum of absolute values.
struct HeadShare {
  int64_t layer = 0, head = 0;
  std::string from;
  std::vector<std::pair<std::string, double>> to;
};

/// Summary of a model's attentions over one segment of an input.
struct AttentionSummary {
  int64_t segment = 0, num_segments = 0;    ///< counted from 1
  std::vector<std::string> words;           ///< its tokens
  std::map<int64_t, LayerMask> masks = {};  ///< of the layers shown
  std::vector<HeadMap> maps = {};
  std::vector<HeadShare> shares = {};
  std::vector<GateSpread> gates = {};
};

/// Which layers, heads and segment of an input to show; unset: all layers and heads, and the last of the segments with
/// the most tokens among those whose memory an earlier one has filled (among all where none is filled: models without
/// memory, texts of one segment). Segments count from 1.
struct AttentionChoice {
  std::optional<std::string> layers, heads;
  std::optional<int64_t> segment;
};

/// "0,2-4" -> 0 2 3 4. Throws InputError naming `what` unless all lie in 0 .. count - 1.
std::vector<int64_t> chosen_numbers(const std::string& text, int64_t count, const std::string& what);

/// Throws NotFinite where a weight of the layer's attention is no number.
void require_numbers(const at::Tensor& weights, int64_t layer);

/// Attention over the segments of an input: the chosen one, and others around it.
struct InputAttention {
  std::vector<AttentionSummary> segments;  ///< in order, without a gap
  size_t chosen = 0;                       ///< index into `segments`

  const AttentionSummary& shown() const { return segments.at(chosen); }
};

/// Runs an input of one sequence through the model. `words` are its tokens in readable form, segment by segment. Other
/// segments are kept as long as all together have at most `max_weights` weights, those before the chosen one first.
/// Throws InputError for a choice out of range, and if no attention of the model provides a map.
InputAttention look_at_input(const models::TextModel& model, const std::vector<data::Batch>& input,
                             const std::vector<std::vector<std::string>>& words, const AttentionChoice& choice,
                             int64_t max_weights = 0);

/// Readable labels of the rows or columns of a layer's map: "read 0", words of tokens, "slot 3".
std::vector<std::string> labels_of(const AttentionSummary& facts, int64_t layer, core::MapAxis axis, int64_t count);
/// Readable kind of a span: that of the table, but "compressed" for the compressed rows of a cache, and "class"
/// and "separator" for rows of kind tokens that are not the segment's own.
std::string kind_of(const core::Span& span);
inline constexpr int64_t kCompressed = 1;  ///< tag of a span of compressed rows
/// The spans of the rows or columns of a layer's map; slots and caches are one span of kind tokens.
std::vector<core::Span> spans_of(const LayerMask& mask, core::MapAxis axis, int64_t count);

std::string to_text(const AttentionSummary& facts);
base::Node to_node(const AttentionSummary& facts);
/// Tables for an HTML page that also shows the picture; those of the other segments are hidden until a script shows
/// them.
std::string to_html(const InputAttention& input);

/// Scalars of a training run at one step, as in log.jsonl.
struct ScalarPoint {
  int64_t step = 0;
  std::vector<core::Scalar> scalars;
};
/// Whether its values are those of heads; the parts of a loss ("loss.box") have one value.
bool has_heads(const core::Scalar& scalar);
/// The shares of a GRC cache as scalars.
ScalarPoint scalars_at(int64_t step, const std::vector<CacheShare>& shares);
/// Reads them from a run's folder; empty if there is no log or it has no scalars.
std::vector<ScalarPoint> read_scalars(const std::string& run_folder);
/// First, last and some steps in between; one row per scalar and head.
std::string to_text(const std::vector<ScalarPoint>& points);
base::Node to_node(const std::vector<ScalarPoint>& points);
/// All of them in a folded table for an HTML page; a column for the step where there are several.
std::string to_html(const std::vector<ScalarPoint>& points);

}  // namespace mnemo::inspect
