#include "core/draws.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/require_state.h"
#include "ops/batch_rows.h"

namespace mnemo::core {

at::Tensor draws(const at::Tensor& carried, int64_t batch, Mode mode) {
  const at::Tensor made = carried.defined() ? carried : at::full({batch}, kNotDrawn, at::kLong);
  if (mode != Mode::train) return made.clamp_min(kFixedDraw);
  // Numbers for all, needed or not: which sequences have begun differs between ranks, whose generators move alike.
  const at::Tensor fresh = ops::row_integers(1, int64_t{1} << 53, batch).to(made.device());
  return at::where(made.eq(kNotDrawn), fresh, made);
}

void require_draw(const char* who, const at::Tensor& carried, bool redraws, int64_t batch) {
  base::require(redraws || !carried.defined(),
                "[{}] the state carries a draw, which this model does not make: expected a state of redraw = "
                "\"never\", found one of a model that redraws",
                who);
  if (redraws) require_state(who, carried, {batch});
}

}  // namespace mnemo::core
