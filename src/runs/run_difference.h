#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "runs/run_list.h"

namespace mnemo::runs {

/// Differences between two runs.
struct RunDifference {
  struct Key {
    std::string key;  ///< "model.memory[0].mem_len"
    base::Node a, b;  ///< null: the run's recipe has no such key
  };
  struct Value {
    std::string name;
    std::optional<double> a, b;
  };
  std::vector<Key> keys;      ///< of the recipes, those that differ
  std::vector<Value> values;  ///< the last values of all curves
  /// For a terminal of `width` columns; 0: lines are not broken.
  std::string text(const RunInfo& a, const RunInfo& b, size_t width = 0) const;
  base::Node to_node(const RunInfo& a, const RunInfo& b) const;
};
/// Recipes are compared with every default. Throws InputError if one cannot be read.
RunDifference compare_runs(const RunInfo& a, const RunInfo& b);
/// Every key below two recipes whose values differ. Lists of one length are compared item by item.
std::vector<RunDifference::Key> differing_keys(const base::Node& a, const base::Node& b);

}  // namespace mnemo::runs
