#include <fmt/format.h>

#include <memory>

#include "base/disk_full.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/output.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "cli/recipes.h"
#include "cli/signals.h"
#include "study/children.h"
#include "study/compare_job.h"
#include "study/run_comparison.h"

namespace mnemo::cli {
namespace {

struct CompareArguments {
  std::string recipe;
  std::optional<std::string> out, job, device;
  std::optional<int64_t> jobs, seeds, rank_timeout;
  std::vector<std::string> set, only;
  bool again = false;
  bool json = false;
};

std::string command_line(const CompareArguments& options) {
  std::string line = "mnemo compare " + base::shell_quoted(options.recipe);
  for (const std::string& assignment : options.set) line += " --set " + base::shell_quoted(assignment);
  for (const std::string& name : options.only) line += " --only " + base::shell_quoted(name);
  if (options.out) line += " --out " + base::shell_quoted(*options.out);
  if (options.seeds) line += fmt::format(" --seeds {}", *options.seeds);
  if (options.jobs) line += fmt::format(" --jobs {}", *options.jobs);
  if (options.device) line += " --device " + *options.device;
  if (common_options().threads > 0) line += fmt::format(" --threads {}", common_options().threads);
  return line;
}

/// The run whose model has the best mean in the first study of models that write texts; empty if there is none.
std::string best_writer(const study::ComparisonOutcome& outcome) {
  for (const study::StudyGrid& study : outcome.comparison.studies) {
    const study::StudyMetric& metric = study.metric();
    const study::VariantSummary* best = nullptr;
    for (const study::VariantSummary& variant : study.points.front().variants) {
      if (variant.failed() || variant.shown().page.empty()) continue;
      const double gain = best == nullptr ? 0 : variant.value.mean - best->value.mean;
      if (best == nullptr || (metric.higher_is_better ? gain > 0 : gain < 0)) best = &variant;
    }
    if (metric.generates && best != nullptr)
      return base::join_path(outcome.folder, base::parent_folder(best->shown().page));
  }
  return "";
}

int compare(const CompareArguments& options, const std::shared_ptr<distributed::Group>& group) {
  const study::ComparisonOutcome outcome = study::run_comparison({.recipe = recipe_path(options.recipe, true),
                                                                  .set = options.set,
                                                                  .only = options.only,
                                                                  .out = options.out.value_or(""),
                                                                  .seeds = options.seeds,
                                                                  .jobs = options.jobs,
                                                                  .threads = common_options().threads,
                                                                  .device = options.device,
                                                                  .again = options.again,
                                                                  .command = command_line(options),
                                                                  .group = group,
                                                                  .should_stop = SignalCount::last,
                                                                  .stop_guard = std::make_shared<SignalCount>,
                                                                  .wishes = SignalCount::count});
  if (group && outcome.stopped == 0) group->leave();
  if (outcome.stopped != 0) {
    if (!group || group->rank() == 0)
      base::log_warning("stopped; {} of {} trainings are done and kept. To resume: {}", outcome.finished,
                        outcome.trainings, command_line(options));
    return base::stopped_by(outcome.stopped);
  }
  if (group && group->rank() != 0) return base::kDone;
  if (options.json) {
    base::print_json(to_node(outcome.comparison));
  } else {
    std::string text;
    for (const study::StudyGrid& study : outcome.comparison.studies) text += "\n" + study::study_text(study);
    base::print(fmt::format("{}\nTime in training {}; report: {}\n", text,
                            base::duration_text(outcome.comparison.seconds), outcome.report));
    if (const std::string best = best_writer(outcome); !best.empty())
      base::print(fmt::format("try the best: mnemo serve {}\n", base::shell_quoted(best)));
  }
  return outcome.status;
}

/// The child's side: one training, with lines on standard output for the parent.
int run_job(const std::string& folder, const std::optional<std::string>& device) {
  const auto on_loss = [](int64_t step, double loss) { base::print(fmt::format("progress {} {:.5g}\n", step, loss)); };
  study::CompareJob job = study::read_job(folder);
  if (common_options().threads > 0) job.recipe.train.threads = common_options().threads;
  try {
    const int stopped = study::run_job(
        job, device,
        {.on_loss = on_loss, .should_stop = pending_signal, .stop_guard = guard_signals, .on_step = note_progress});
    return stopped == 0 ? base::kDone : base::stopped_by(stopped);
  } catch (const base::DiskFull& error) {  // the file of messages has no room either
    base::print(fmt::format("{}{}\n", study::kDiskFull, error.what()));
    throw;
  }
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareArguments>();
  Command(app, "compare", "train the same task with several memories; write tables and an HTML report")
      .argument("RECIPE", options->recipe,
                "recipe with [[study]] tables or a [sweep], or the name of one (see mnemo recipes)", false)
      .allow_ranks()
      .option("--out", options->out, "DIR",
              "folder for report.html, results.json, results.md and all runs (default: runs/ and the name of the "
              "recipe's file without .toml)")
      .option("--seeds", options->seeds, "N",
              "seeds per variant (default: the recipe's, or 1); with two or more the table uses Welch's t-test")
      .option("--jobs", options->jobs, "N", "number of parallel training processes (default: number of cores)")
      .option("--rank-timeout", options->rank_timeout, "SECONDS",
              "ranks of a job that share the trainings: stop if one of them is silent for this long (default 600)",
              base::range(5, 1 << 20))
      .option("--set", options->set, "KEY=VALUE",
              "set a key for all studies, or for one (study[0].train.steps=9); may be repeated")
      .option("--only", options->only, "NAME",
              "train and show this variant alone, VARIANT or STUDY/VARIANT; may be repeated (default: all)")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .flag("--again", options->again,
            "train everything again (default: keep finished runs in --out and train the rest)")
      .flag("--json", options->json, "print the results as JSON")
      .hidden_option("--job", options->job)
      .footer("mnemo compare demo\nmnemo compare my.toml --seeds 3 --out runs/compared")
      .action([options] {
        if (options->job) return run_job(*options->job, options->device);
        base::require(!options->recipe.empty(), "compare: RECIPE is required");
        return on_ranks({"compare", {}, options->rank_timeout}, "",
                        [&](const std::shared_ptr<distributed::Group>& group) { return compare(*options, group); });
      });
}

}  // namespace mnemo::cli
