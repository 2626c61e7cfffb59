#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::verify {

/// The largest absolute difference of one group of tensors of a golden file, and where it is.
struct GoldenGroup {
  std::string name;  ///< "outputs", "states", "gradients of parameters", ...
  int64_t tensors = 0;
  double error = 0.0;
  double tolerance = 0.0;
  std::string worst;  ///< the tensor with that error
};

struct GoldenReport {
  std::string file, what;
  double tolerance = 0.0;
  std::vector<GoldenGroup> groups;
  bool passed() const;
};

/// A folder that is a model with an expect.safetensors beside it: runs it and compares logits, hidden rows and
/// gradients. A file: builds what a golden file's config describes, loads its parameters, runs its steps in float64 on
/// the device and compares everything the file holds. Throws InputError for a file that cannot be read or a mechanism
/// this build does not have.
GoldenReport verify_golden(const std::string& path, at::Device device = at::kCPU);

}  // namespace mnemo::verify
