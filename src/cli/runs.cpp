#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/output.h"
#include "cli/command.h"
#include "cli/run_table.h"
#include "runs/run_difference.h"

namespace mnemo::cli {
namespace {

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
        print_runs(folders.empty() ? "runs" : folders[0], options->json);
        return base::kDone;
      });
}

}  // namespace mnemo::cli
