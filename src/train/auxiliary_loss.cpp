#include "train/auxiliary_loss.h"

#include <torch/types.h>

namespace mnemo::train {

at::Tensor with_auxiliary(at::Tensor loss, const core::Model& model, const core::StepResult& step, double share) {
  for (const core::AuxiliaryLoss& auxiliary : model.auxiliary_losses(step)) {
    const at::Tensor term = auxiliary.values.mean() * (auxiliary.weight * share);
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

}  // namespace mnemo::train
