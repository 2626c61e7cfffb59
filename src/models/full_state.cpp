#include "models/full_state.h"

#include <torch/types.h>

#include <algorithm>
#include <string>

#include "core/backbone.h"
#include "models/kinds.h"
namespace mnemo::models {
namespace {

/// The rows that a field may have, `path` within a backbone and the memories beside it, null: none.
int64_t max_rows_in(const core::Backbone& backbone, const SegmentMemories* memories, std::string_view path,
                    core::Mode mode) {
  const auto rows_of = [&](const auto& owner, const std::string& name) -> int64_t {
    return owner.max_rows(path.substr(name.size() + 1), mode);
  };
  const auto is_of = [&](const std::string& name) {
    return path.size() > name.size() && path.starts_with(name) && path[name.size()] == '.';
  };
  if (memories != nullptr) {
    for (const auto& [name, context] : memories->contexts()) {
      if (is_of(name)) return rows_of(*context, name);
    }
  }
  for (int64_t layer = 0; layer < backbone.num_layers(); ++layer) {
    const std::string name = "layers." + backbone.layer_name(layer);
    if (is_of(name)) return rows_of(backbone.attention(layer), name);
  }
  return 0;
}

}  // namespace

int64_t max_rows(const Model& model, std::string_view path, core::Mode mode) {
  return visit(model,
               Overloaded{
                   [&](const TextModel& text) { return max_rows_in(text.backbone(), &text.memories(), path, mode); },
                   [&](const ImageModel& images) { return max_rows_in(images.backbone(), nullptr, path, mode); },
                   [&](const PairModel& pairs) {
                     constexpr std::string_view kEncoder = "source.encoder.";
                     const SourceSide& source = pairs.source();
                     if (path.starts_with(kEncoder))
                       return max_rows_in(source.encoder(), &source.memories(), path.substr(kEncoder.size()), mode);
                     return max_rows_in(pairs.backbone(), &pairs.target().memories(), path, mode);
                   },
               });
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
