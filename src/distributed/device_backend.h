#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>

namespace mnemo::distributed {

/// c10d's backend for tensors on GPUs (NCCL), one GPU a rank. wait() of its work returns when the tensors are complete,
/// and throws where a rank does not come within the time-out. All ranks make it together. Throws InputError in a build
/// without CUDA.
c10::intrusive_ptr<c10d::Backend> make_device_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                      std::chrono::milliseconds timeout);

}  // namespace mnemo::distributed
