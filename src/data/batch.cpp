#include "data/batch.h"

#include <ATen/ops/any.h>

#include "base/error.h"

namespace mnemo::data {

void Targets::wrong_type(const char* wanted) {
  throw base::InternalError(fmt::format("the targets of a batch are not the task's: expected {}", wanted));
}

Batch to(Batch batch, at::Device device) {
  if (device.is_cpu()) return batch;
  if (batch.reset.defined() && !batch.reset.any().item<bool>()) batch.reset.reset();
  return to<Batch>(std::move(batch), device);
}

}  // namespace mnemo::data
