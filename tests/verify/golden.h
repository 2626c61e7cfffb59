#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::verify {

/// The largest absolute difference within one group of tensors of a golden file, and where it occurs.
struct GoldenGroup {
  std::string name;  ///< "outputs", "states", "gradients of parameters", ...
  int64_t tensors = 0;
  double error = 0.0;
  double tolerance = 0.0;
  std::string worst;                     ///< the tensor with this error
  std::vector<std::string> beyond = {};  ///< the tensors with a larger error than the tolerance
};

struct GoldenReport {
  std::string file, what;
  double tolerance = 0.0;
  std::vector<GoldenGroup> groups;
  bool passed() const;
};

/// If the path is a model folder with an expect.safetensors: runs the model and compares logits, hidden states and
/// gradients. If it is a file: builds what the golden file's config describes, loads its parameters, runs its steps in
/// float64 on the device and compares everything in the file. Throws InputError if the file cannot be read, if it has a
/// tensor that is neither used nor compared, or for a mechanism that this build does not have.
GoldenReport verify_golden(const std::string& path, at::Device device = at::kCPU);

}  // namespace mnemo::verify
