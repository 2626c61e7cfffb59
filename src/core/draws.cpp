#include "core/draws.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/require_state.h"

namespace mnemo::core {

at::Tensor draws(const at::Tensor& carried, int64_t batch, Mode mode) {
  const at::Tensor made = carried.defined() ? carried : at::full({batch}, kNotDrawn, at::kLong);
  if (mode != Mode::train) return made.clamp_min(kFixedDraw);
  const at::Tensor missing = made.eq(kNotDrawn);
  if (!missing.any().item<bool>()) return made;
  return at::where(missing, at::randint(1, int64_t{1} << 53, {batch}, at::kLong).to(made.device()), made);
}

void require_draw(const char* who, const at::Tensor& carried, bool redraws, int64_t batch) {
  base::require(redraws || !carried.defined(),
                "[{}] the state carries a draw, which this model does not make: expected a state of redraw = "
                "\"never\", found one of a model that redraws",
                who);
  if (redraws) require_state(who, carried, {batch});
}

}  // namespace mnemo::core
