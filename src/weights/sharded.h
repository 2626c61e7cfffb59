#pragma once

#include <string>

#include "weights/safetensors.h"

namespace mnemo::weights {

/// Name of the file that lists which of several files holds each tensor.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Reads a model that is split over several files, as its index says: {"weight_map": {TENSOR: FILE, ..}}. Files must be
/// in the index's folder. Memory: the sizes of the files and the index. Throws InputError that names the index and the
/// tensor or file: for a name that could leave the folder, a missing file or tensor, and a tensor that is in two files
/// or not in the index. Also throws it for more than 4,096 files.
TensorFile read_sharded(const std::string& index, const ReadOptions& options = {});

}  // namespace mnemo::weights
