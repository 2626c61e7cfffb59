#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "inspect/image_record.h"

namespace mnemo::inspect {

/// How far the output of one branch of an attention differs between images. Zhang et al. 2024, figure 4, shows for
/// single images that o_mem has what a class shares and o_self what an instance has of its own; here in two numbers.
///   x_i [C]: output for image i of n, the mean over its rows;  m [C]: mean over the images;  m_c [C]: over a class c
struct BranchSpread {
  int64_t layer = 0;
  std::string name;  ///< "o_self", "o_mem"
  /// sum_i |x_i - m|^2 / sum_i |x_i|^2; 0: the same for all images.
  double images = 0;
  /// Variance within the k classes by that over all images: (sum_i |x_i - m_c(i)|^2 / (n - k)) / (sum_i |x_i - m|^2 /
  /// (n - 1)). 0: the same for all images of a class; about 1: classes say nothing. Unset with fewer than two classes
  /// or one image of each.
  std::optional<double> within = {};
};

/// Sums over images, in one pass.
class BranchSpreads {
 public:
  void add(const std::string& class_name, const std::vector<ImageLayer>& layers);
  std::vector<BranchSpread> result() const;

 private:
  struct Sum {
    int64_t layer = 0;
    std::string name;
    double squares = 0;                             // sum of |x|^2
    std::map<std::string, at::Tensor> totals = {};  // [C]: of each class
  };
  std::vector<Sum> sums_;
  std::map<std::string, int64_t> counts_;
};

std::string to_text(const std::vector<BranchSpread>& spreads);
base::Node to_node(const std::vector<BranchSpread>& spreads);
std::string to_html(const std::vector<BranchSpread>& spreads);

}  // namespace mnemo::inspect
