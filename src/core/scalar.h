#pragma once

#include <string>
#include <vector>

namespace mnemo::core {

/// Values of a mechanism to log during training.
struct Scalar {
  std::string name;
  std::vector<double> values;
};

}  // namespace mnemo::core
