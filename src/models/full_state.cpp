#include "models/full_state.h"

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "core/backbone.h"
#include "core/bounded.h"
#include "models/model.h"

namespace mnemo::models {

int64_t max_rows(const Model& model, std::string_view path, core::Mode mode) {
  constexpr std::string_view kEncoder = "source.encoder.";
  const bool encodes = model.source() != nullptr && path.starts_with(kEncoder);
  if (encodes) path.remove_prefix(kEncoder.size());
  const auto rows_of = [&](const auto& owner, const std::string& name) -> int64_t {
    const auto* bounded = dynamic_cast<const core::Bounded*>(&owner);
    return bounded == nullptr ? 0 : bounded->max_rows(path.substr(name.size() + 1), mode);
  };
  const auto is_of = [&](const std::string& name) {
    return path.size() > name.size() && path.starts_with(name) && path[name.size()] == '.';
  };
  if (model.input_kind() != core::InputKind::images) {
    const SegmentMemories& memories = encodes ? model.source()->memories() : model.memories();
    for (const auto& [name, context] : memories.contexts()) {
      if (is_of(name)) return rows_of(*context, name);
    }
  }
  const core::Backbone& backbone = encodes ? model.source()->encoder() : model.backbone();
  for (int64_t layer = 0; layer < backbone.num_layers(); ++layer) {
    const std::string name = "layers." + backbone.layer_name(layer);
    if (is_of(name)) return rows_of(backbone.attention(layer), name);
  }
  return 0;
}

int64_t full_state_bytes(const Model& model, core::Mode mode, int64_t rows) {
  const at::NoGradGuard no_grad;
  int64_t bytes = 0;
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (!field.per_sequence()) continue;
    const int64_t past = field.dim("M");
    if (past < 0) {
      bytes += static_cast<int64_t>(tensor.nbytes());
      continue;
    }
    auto row = static_cast<int64_t>(tensor.element_size());
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) row *= dim == past ? 1 : tensor.size(dim);
    bytes += row * std::max(tensor.size(past), std::min(max_rows(model, field.path, mode), rows));
  }
  return bytes;
}

}  // namespace mnemo::models
