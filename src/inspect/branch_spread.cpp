#include "inspect/branch_spread.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include "base/html.h"
#include "base/json_value.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

double squared_length(const at::Tensor& row) { return row.square().sum().item<double>(); }

constexpr const char* kSpreadTitle =
    "Outputs of the branches, means over the rows: variance over the images, by the mean square, and variance within a "
    "class, by that over the images";

page::Table spread_cells(const std::vector<BranchSpread>& spreads) {
  page::Table cells{{"layer", "branch", "over images", "within a class"}, {}};
  for (const BranchSpread& one : spreads)
    cells.rows.push_back({std::to_string(one.layer), one.name, fmt::format("{:.4f}", one.images),
                          one.within ? fmt::format("{:.3f}", *one.within) : ""});
  return cells;
}

}  // namespace

void BranchSpreads::add(const std::string& class_name, const std::vector<ImageLayer>& layers) {
  const bool first = counts_.empty();
  ++counts_[class_name];
  size_t next = 0;
  for (const ImageLayer& layer : layers) {
    for (const ImageBranch& branch : layer.branches) {
      if (first) sums_.push_back({layer.layer, branch.name});
      Sum& sum = sums_.at(next++);
      sum.squares += squared_length(branch.mean_row);
      at::Tensor& total = sum.totals[class_name];
      total = total.defined() ? total + branch.mean_row : branch.mean_row;
    }
  }
}

std::vector<BranchSpread> BranchSpreads::result() const {
  int64_t images = 0;
  for (const auto& [name, count] : counts_) images += count;
  const auto n = static_cast<double>(images), k = static_cast<double>(counts_.size());
  std::vector<BranchSpread> spreads;
  for (const Sum& sum : sums_) {
    at::Tensor all = at::zeros_like(sum.totals.begin()->second);
    double of_classes = 0;  // sum over classes of |m_c|^2, by their sizes
    for (const auto& [name, total] : sum.totals) {
      all = all + total;
      of_classes += squared_length(total) / static_cast<double>(counts_.at(name));
    }
    const double apart = std::max(0.0, sum.squares - squared_length(all) / n),
                 inside = std::max(0.0, sum.squares - of_classes);
    BranchSpread spread{sum.layer, sum.name, sum.squares > 0 ? apart / sum.squares : 0.0};
    if (k > 1 && n > k && apart > 0) spread.within = inside / (n - k) / (apart / (n - 1));
    spreads.push_back(std::move(spread));
  }
  return spreads;
}

std::string to_text(const std::vector<BranchSpread>& spreads) {
  return fmt::format("{}\n{}", kSpreadTitle, page::text_of(spread_cells(spreads)));
}

base::Node to_node(const std::vector<BranchSpread>& spreads) {
  base::Node nodes = base::Node::array();
  for (const BranchSpread& one : spreads) {
    base::Node node = base::Node::table(
        {{"layer", one.layer}, {"branch", one.name}, {"over_images", base::rounded(one.images)}});
    if (one.within) node.set("within_class", base::rounded(*one.within));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::string to_html(const std::vector<BranchSpread>& spreads) {
  return "<p>" + base::html_escape(kSpreadTitle) + "</p>\n" + page::html_of(spread_cells(spreads));
}

}  // namespace mnemo::inspect
