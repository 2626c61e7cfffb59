#include "core/backbone.h"

#include "base/error.h"

namespace mnemo::core {

State Backbone::initial_state(int64_t batch) const {
  State::Children children;
  for (int64_t layer = 0; layer < num_layers(); ++layer)
    children.emplace_back(layer_name(layer), attention(layer).initial_state(batch));
  return State::list(std::move(children));
}

at::Tensor Backbone::attention_rows(int64_t, const at::Tensor&) const {
  throw base::InternalError("a backbone without layer contexts");
}

}  // namespace mnemo::core
