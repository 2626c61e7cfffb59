#pragma once

#include <string>

#include "weights/safetensors.h"

namespace mnemo::weights {

/// Tensors from this size on stay in a file that is mapped; smaller ones are copied.
inline constexpr uint64_t kMappedBytes = uint64_t{1} << 20;

/// As read_safetensors(), but large tensors are core::mapped_tensor, read-only. The file must keep its length and its
/// content as long as they are read; that it is replaced by another (as every writer here does) changes nothing.
TensorFile map_safetensors(const std::string& path);

/// As read_sharded(), with files read by map_safetensors().
TensorFile map_sharded(const std::string& index);

}  // namespace mnemo::weights
