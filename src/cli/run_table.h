#pragma once

#include <string>
#include <vector>

#include "base/output.h"
#include "runs/run_list.h"

namespace mnemo::cli {

/// `mnemo runs FOLDER`. Throws InputError if there is no such folder. Inline for the program that loads no LibTorch.
inline void print_runs(const std::string& folder, bool json) {
  const std::vector<runs::RunInfo> runs = runs::find_runs(folder);
  if (json) {
    base::Node rows = base::Node::array();
    for (const runs::RunInfo& run : runs) rows.push_back(run.to_node());
    base::print_json(rows);
  } else if (runs.empty()) {
    base::print(folder + ": no runs\n");
  } else {
    base::print(runs::runs_text(runs, base::output_columns()));
  }
}

}  // namespace mnemo::cli
