#pragma once

#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::weights {

struct LoadOptions {
  /// Every target must be in the file and every tensor of the file must be a target.
  bool strict = true;
  /// Let floating-point tensors be converted (a bfloat16 file into a float32 model). Never between floating point and
  /// integers.
  bool convert_floating = true;
};

struct LoadReport {
  std::vector<std::string> missing;     // targets that the file lacks; left as they were
  std::vector<std::string> unexpected;  // tensors of the file that no target has
};

/// Copies tensors of a file into `targets` of the same name, in place and outside autograd. Everything is checked
/// first: names, shapes, dtypes. Throws InputError listing what is missing, unexpected or ill-shaped (expected and
/// found), and then nothing has been copied.
///   where: the file's name, for messages.
LoadReport load_into(const TensorFile& file, const NamedTensors& targets, const std::string& where,
                     const LoadOptions& options = {});

}  // namespace mnemo::weights
