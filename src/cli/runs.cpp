#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/output.h"
#include "cli/command.h"
#include "runs/runs.h"

namespace mnemo::cli {
namespace {

int list_runs(const std::string& folder, bool json) {
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
  return base::kDone;
}

int compare_two(const std::string& first, const std::string& second, bool json) {
  const runs::RunInfo a = runs::read_run(first), b = runs::read_run(second);
  const runs::RunDifference difference = runs::compare_runs(a, b);
  if (json) {
    base::print_json(difference.to_node(a, b));
  } else {
    base::print(difference.text(a, b, base::output_columns()));
  }
  return base::kDone;
}

}  // namespace

void add_runs(CLI::App& app) {
  struct Options {
    std::vector<std::string> folders;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Command(app, "runs", "list training runs with their state, or compare two")
      .arguments(
          "FOLDER", options->folders,
          "where runs and comparisons are (default: runs); two folders of runs: compare their recipes and results",
          false)
      .flag("--json", options->json, "print JSON")
      .footer("mnemo runs\nmnemo runs runs/a runs/b")
      .action([options] {
        const std::vector<std::string>& folders = options->folders;
        base::require(folders.size() <= 2, "runs: expected a folder, or two runs to compare, found {} folders",
                      folders.size());
        if (folders.size() == 2) return compare_two(folders[0], folders[1], options->json);
        return list_runs(folders.empty() ? "runs" : folders[0], options->json);
      });
}

}  // namespace mnemo::cli
