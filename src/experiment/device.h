#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/model.h"
#include "distributed/group.h"

namespace mnemo::experiment {

/// The device of --device: cpu (default), cuda (the first GPU) or cuda:N. With several ranks on one machine, cuda is
/// the GPU with the rank's local number. Throws InputError for other names, and for a device that this build or machine
/// does not have.
at::Device device_named(const std::optional<std::string>& name, const distributed::Group* ranks = nullptr);

/// Moves a model's parameters there; its states follow.
void move_to(core::Model& model, at::Device device);

/// The most memory in bytes that LibTorch has held of that device so far, free blocks of its cache included; 0 for the
/// processor, and before the first allocation.
int64_t peak_device_memory(at::Device device);

/// "no CUDA", or how many devices there are.
std::string describe_cuda();

}  // namespace mnemo::experiment
