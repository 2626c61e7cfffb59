#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace mnemo::layers {

/// While it lives, parameters that this thread creates are the given tensors instead of new ones, by their full names:
/// a model is built around weights that exist. Parameters without a given tensor are created as usual.
class GivenParameters {
 public:
  explicit GivenParameters(std::map<std::string, at::Tensor> tensors);
  ~GivenParameters();
  GivenParameters(const GivenParameters&) = delete;
  GivenParameters& operator=(const GivenParameters&) = delete;

  /// The tensor given for a parameter; undefined if there is none. Throws ShapeError for one of another shape.
  static at::Tensor find(const std::string& name, at::IntArrayRef shape);

 private:
  std::map<std::string, at::Tensor> tensors_;
  const GivenParameters* before_;
};

}  // namespace mnemo::layers
