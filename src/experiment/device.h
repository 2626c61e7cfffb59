#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "distributed/group.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::experiment {

/// What --device says, the processor where it is not given: cpu, cuda (the first one) or cuda:N. Of several ranks on
/// one machine each has a GPU of its own: cuda is the one with the rank's number on the machine. Throws InputError for
/// another name, and where this build or this machine has no such device.
at::Device device_named(const std::optional<std::string>& name, const distributed::Group* ranks = nullptr);

/// Moves a model's parameters there; its states follow.
void move_to(core::Model& model, at::Device device);

/// The most memory in bytes that LibTorch has held of that device so far, free blocks of its cache included; 0 for the
/// processor, and before the first allocation.
int64_t peak_device_memory(at::Device device);

/// "no CUDA", or how many devices there are.
std::string describe_cuda();

}  // namespace mnemo::experiment
