#pragma once

#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::weights {

struct LoadOptions {
  /// Require that every target is in the file and every tensor of the file is a target.
  bool strict = true;
  /// Allow conversion of floating-point tensors (a bfloat16 file into a float32 model). Never between floating point
  /// and integers.
  bool convert_floating = true;
  /// Require that every number is finite, also after conversion.
  bool finite = false;
  /// Compare names, shapes and types, and copy nothing: targets may lie on the meta device.
  bool compare_only = false;
};

struct LoadReport {
  std::vector<std::string> missing;     // targets that are missing in the file; left unchanged
  std::vector<std::string> unexpected;  // tensors of the file without a target
};

/// Copies tensors of a file into `targets` of the same name, in place and outside autograd. Names, shapes and dtypes
/// are checked first. Throws InputError that lists what is missing, unexpected or wrongly shaped (expected and found),
/// without copying anything.
///   where: the file's name, for messages.
LoadReport load_into(const TensorFile& file, const NamedTensors& targets, const std::string& where,
                     const LoadOptions& options = {});

}  // namespace mnemo::weights
