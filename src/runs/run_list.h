#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/node.h"

namespace mnemo::runs {

enum class RunState { finished, training, interrupted };

inline constexpr const char* kRecipeFile = "recipe.toml";

/// Summary of a run, read from its folder.
struct RunInfo {
  std::string folder, title;
  RunState state = RunState::interrupted;
  int64_t step = 0;                                         ///< steps done, by the log
  int64_t steps = 0;                                        ///< of the recipe
  std::optional<int64_t> checkpoint = {};                   ///< step of the newest; an interrupted run resumes from it
  std::string metric = {};                                  ///< the task's ("bits_per_character"); empty: not measured
  std::vector<std::pair<std::string, double>> values = {};  ///< last of each curve: "loss", "lr", "valid.nll"
  int64_t bytes = 0;                                        ///< of all its files
  int64_t changed = 0;                                      ///< when the log last grew, in seconds since 1970

  /// The last value of a curve; nothing if it has none.
  std::optional<double> value(std::string_view name) const;
  /// "finished", "training" or "interrupted at step 400".
  std::string state_text() const;
  base::Node to_node() const;
};

/// Reads the folder of a run; it may be in use. Throws InputError if there is none, or its recipe is not that of a run.
RunInfo read_run(const std::string& folder);

/// The runs in a folder and in the comparisons there, in order of their paths; of the folder of a run, that run. What
/// cannot be read is left out with a warning. Throws InputError if there is no such folder.
std::vector<RunInfo> find_runs(const std::string& folder);

/// Runs as a table for a terminal of `width` columns; 0: lines are not broken.
std::string runs_text(const std::vector<RunInfo>& runs, size_t width = 0);

}  // namespace mnemo::runs
