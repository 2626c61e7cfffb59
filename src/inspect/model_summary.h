#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "core/spans.h"
#include "inspect/cache_share.h"
#include "models/model.h"
#include "page/document.h"

namespace mnemo::inspect {

/// Parameters of one module ("backbone.layers.0.attn").
struct ModuleSummary {
  std::string name;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors;  ///< last part of the name, shape
  int64_t parameters = 0;
};

/// One tensor of the state of one sequence.
struct StateFieldSummary {
  std::string path;
  std::string dims;  ///< "B M D"
  std::vector<int64_t> shape;
  std::string dtype;
  int64_t bytes = 0;
  bool per_sequence = true;
};

/// Facts about a model that need no data.
struct ModelSummary {
  std::vector<ModuleSummary> modules = {};
  int64_t parameters = 0;
  std::vector<StateFieldSummary> state = {};  ///< between segments, once every memory is full; of pairs the first one
  int64_t state_bytes = 0;                    ///< per sequence
  int64_t model_state_bytes = 0;              ///< of the model, shared by all sequences
  /// Largest state of one sequence inside a segment decoded token by token. Unset if measuring takes too long, or if
  /// the model cannot decode (sees_ahead).
  std::optional<int64_t> open_bytes = 0;
  /// Tokens before `state` was measured, if filling the memories takes too long to run, or 0 of pairs, whose memories
  /// are not run; unset: they are full.
  std::optional<int64_t> measured_after = {};
  /// With measured_after: of a sequence once every memory is full, as the memories declare it.
  int64_t full_bytes = 0;
  /// State of a sequence once every memory is full, measured or declared.
  int64_t full_state_bytes() const { return measured_after ? full_bytes : state_bytes; }
  /// A whole segment with full memories, as in evaluation, for each set of layers that see the same context; empty for
  /// a vision model.
  std::vector<models::LayerTable> tables = {};
  std::vector<CacheShare> cache_share = {};
  bool sees_ahead = false;  ///< models::Model::sees_ahead: which the tables do not show
};

/// For a language model: runs segments of token 0 until no memory grows any more. For a vision model: its initial
/// state.
ModelSummary summarize(const models::Model& model);

std::string to_text(const ModelSummary& facts);
base::Node to_node(const ModelSummary& facts);
/// Adds the first part of a page: sizes, attention masks, sigma(lambda).
void add_overview(page::Document& page, const ModelSummary& facts);
/// Adds the tables of state and parameters, and the model's options.
void add_details(page::Document& page, const ModelSummary& facts, const std::string& options);

}  // namespace mnemo::inspect
