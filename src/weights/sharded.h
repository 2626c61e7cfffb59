#pragma once

#include <string>

#include "weights/safetensors.h"

namespace mnemo::weights {

/// Name of the file that lists which of several files holds each tensor.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Reads a model that is split over several files, as its index says: {"weight_map": {TENSOR: FILE, ..}}. Files must
/// lie beside the index. Memory: the sizes of the files and the index. Throws InputError that names the index and the
/// tensor or file for a name that could leave the folder, a file or a tensor that is missing, a tensor that two files
/// hold or that the index does not list, and for more than 4,096 files.
TensorFile read_sharded(const std::string& index, const ReadOptions& options = {});

}  // namespace mnemo::weights
