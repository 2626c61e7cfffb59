#include "study/run_comparison.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "study/compare_job.h"
#include "study/report/report.h"
#include "study/run_store.h"
#include "study/shared_trainings.h"
#include "study/supervisor.h"

namespace mnemo::study {
namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

/// The training run of one number in a table.
struct Cell {
  size_t study, point, variant, job;
  int64_t seed;
};

struct ComparePlan {
  std::vector<CompareJob> jobs;  ///< each training run once
  std::vector<Cell> cells;
  std::set<int64_t> seeds;
};

std::vector<int64_t> seeds_of(const recipes::RecipeStudy& study, const recipes::Recipe& recipe,
                              const ComparisonOptions& options) {
  if (!study.sweep.seeds.empty() && !options.seeds) return study.sweep.seeds;
  const int64_t first = study.sweep.seeds.empty() ? recipe.train.seed : study.sweep.seeds.front();
  base::require(first <= INT64_MAX - options.seeds.value_or(1),
                "compare: --seeds: expected seeds below 2^63, the first is {}", first);
  std::vector<int64_t> seeds;
  for (int64_t round = 0; round < options.seeds.value_or(1); ++round) seeds.push_back(first + round);
  return seeds;
}

/// Seeds are the outer loop, so that an interrupted comparison has complete rounds. Tables with identical recipes share
/// one training run.
ComparePlan plan_of(const recipes::RecipeFile& file, const ComparisonOptions& options, RunStore& store) {
  ComparePlan plan;
  std::map<std::string, size_t> known;
  bool more = true;
  for (size_t round = 0; more; ++round) {
    more = false;
    for (size_t s = 0; s < file.studies().size(); ++s) {
      const recipes::RecipeStudy& study = file.studies()[s];
      for (size_t p = 0; p < study.points.size(); ++p) {
        for (size_t v = 0; v < study.variants.size(); ++v) {
          if (!study.variants[v].recipes[p]) continue;
          CompareJob job{.study = study.name,
                         .variant = study.variants[v].name,
                         .point = recipes::point_label(study.sweep, study.points[p]),
                         .folder = {},
                         .recipe = recipes::read_recipe(*study.variants[v].recipes[p])};
          if (round == 0) experiment::require_buildable(job.recipe);
          const std::vector<int64_t> seeds = seeds_of(study, job.recipe, options);
          if (round >= seeds.size()) continue;
          more = true;
          job.seed = job.recipe.train.seed = seeds[round];
          job.max_seconds = study.max_seconds;
          store.place(job);
          const auto [found, is_new] = known.emplace(job.folder, plan.jobs.size());
          plan.cells.push_back({s, p, v, found->second, job.seed});
          plan.seeds.insert(job.seed);
          if (is_new) plan.jobs.push_back(std::move(job));
        }
      }
    }
  }
  return plan;
}

/// The part of a variant's recipe that describes its memory. Vision backbones bring their own attention; a model of
/// pairs has both in its two sides.
std::string memory_options(const base::Node& recipe) {
  const base::Node& model = recipe.at("model");
  base::Node shown = base::Node::table();
  const auto take = [](base::Node& into, const base::Node& from, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (const base::Node* value = from.find(key); value != nullptr && !value->is_null()) into.set(key, *value);
    }
  };
  take(shown, model.at("backbone"), {"attention"});
  take(shown, model, {"memory"});
  for (const auto& [key, side] : model.at("backbone").members()) {
    if (!side.contains("attention")) continue;
    base::Node part = base::Node::table();
    take(part, side, {"attention", "cross_attention", "memory"});
    shown.set(key, part);
  }
  if (const base::Node* finetune = recipe.find("finetune"); finetune != nullptr && finetune->is_table())
    shown.set("finetune", *finetune);
  return base::to_toml(shown);
}

AxisSummary axis_summary(const recipes::SweepAxis& axis) {
  AxisSummary out{.name = axis.name()};
  for (size_t i = 0; i < axis.values.size(); ++i) {
    out.labels.push_back(axis.label(i));
    if (const auto number = axis.number(i)) out.numbers.push_back(*number);
  }
  return out;
}

PaperPoint paper_point(const recipes::PaperValue& value) {
  PaperPoint out{.variant = value.variant,
                 .value = value.value,
                 .deviation = value.deviation,
                 .metric = value.metric,
                 .source = value.source};
  for (const base::Node& at : value.at) {
    out.labels.push_back(recipes::SweepAxis{{""}, {{at}}}.label(0));
    out.numbers.push_back(recipes::SweepAxis{{""}, {{at}}}.number(0));
  }
  return out;
}

std::vector<StudyGrid> collect(const recipes::RecipeFile& file, const ComparePlan& plan, const Supervisor& supervisor) {
  std::vector<StudyGrid> grids;
  for (size_t s = 0; s < file.studies().size(); ++s) {
    const recipes::RecipeStudy& study = file.studies()[s];
    StudyGrid grid{.name = study.name,
                   .about = study.about,
                   .x = study.sweep.x_axis(),
                   .x_label = study.sweep.figure.label,
                   .log_x = study.sweep.figure.log};
    for (const recipes::RecipeVariant& variant : study.variants) grid.variants.push_back(variant.name);
    for (const recipes::SweepAxis& axis : study.sweep.axes) grid.axes.push_back(axis_summary(axis));
    if (grid.x_label.empty() && !grid.axes.empty()) grid.x_label = grid.axes[grid.x].name;
    for (const recipes::PaperValue& value : study.paper) grid.paper.push_back(paper_point(value));
    grid.at = study.points;
    for (size_t p = 0; p < study.points.size(); ++p) {
      StudySummary summary{.name = study.name,
                           .about = study.about,
                           .point = recipes::point_label(study.sweep, study.points[p]),
                           .metric = metric_of(recipes::read_recipe(*study.variants.front().recipes[p]), study.metric),
                           .least_gain = study.least_gain,
                           .variants = {}};
      for (size_t v = 0; v < study.variants.size(); ++v) {
        const recipes::RecipeVariant& variant = study.variants[v];
        if (!variant.recipes[p]) continue;
        VariantSummary row{.name = variant.name,
                           .about = variant.about,
                           .index = v,
                           .options = memory_options(*variant.recipes[p]),
                           .runs = {}};
        for (const Cell& cell : plan.cells) {
          if (cell.study != s || cell.point != p || cell.variant != v) continue;
          RunResult result = supervisor.result(cell.job).value();
          result.study = study.name;
          result.variant = variant.name;
          result.point = summary.point;
          take_metric(result, summary.metric);
          row.runs.push_back(std::move(result));
        }
        summary.variants.push_back(std::move(row));
      }
      summarise(summary);
      grid.points.push_back(std::move(summary));
    }
    grids.push_back(std::move(grid));
  }
  return grids;
}

void check_same_data(const recipes::RecipeFile& file) {
  for (const recipes::RecipeStudy& study : file.studies()) {
    const auto task_of = [](const base::Node& recipe) { return recipes::read_recipe(recipe).task(); };
    const auto first = task_of(*study.variants.front().recipes.front());
    const std::string metric = first->metric().key();
    for (const recipes::RecipeVariant& variant : study.variants) {
      for (const std::optional<base::Node>& recipe : variant.recipes) {
        if (!recipe) continue;
        const auto task = task_of(*recipe);
        base::require((task->text() != nullptr) == (first->text() != nullptr),
                      "{}: study '{}': variant '{}' uses a different type of data than the first one", file.path(),
                      study.name, variant.name);
        base::require(!study.metric.empty() || task->metric().key() == metric,
                      "{}: study '{}': variant '{}' is measured by {}, the first one by {}; expected one metric, or "
                      "'metric' in the study",
                      file.path(), study.name, variant.name, task->metric().key(), metric);
      }
    }
  }
}

/// A comparison without results.
Comparison heading(const recipes::RecipeFile& file, const ComparisonOptions& options, const ComparePlan& plan,
                   size_t trainings) {
  Comparison comparison;
  comparison.name = file.name();
  comparison.about = file.about();
  comparison.command = options.command;
  comparison.date = now_text();
  comparison.trainings = fmt::format("{}, {} {}", base::counted(static_cast<int64_t>(trainings), "training"),
                                     plan.seeds.size() == 1 ? "seed" : "seeds", fmt::join(plan.seeds, ", "));
  comparison.machine = to_node(base::this_machine());
  comparison.recipe = base::to_toml(file.root());
  return comparison;
}

/// The name of the comparison whose report is in the folder; nothing where there is none, or none that can be read.
std::optional<std::string> reported_in(const std::string& folder) {
  const std::string path = base::join_path(folder, "results.json");
  if (!base::path_exists(path)) return std::nullopt;
  try {
    return base::parse_json(base::read_file(path), path).at("name").as_string();
  } catch (const base::InputError&) {
    return std::nullopt;
  }
}

/// Refuses a recipe that would replace a report without keeping any training of the folder. Warns of trainings that are
/// repeated because their settings have changed.
void say_changes(const Supervisor& supervisor, const RunStore& store, bool reported, const std::string& folder) {
  const std::vector<CompareJob>& jobs = supervisor.jobs();
  std::optional<std::string> first;
  size_t changed = 0, known = 0;
  for (const CompareJob& job : jobs) {
    known += base::path_exists(job.folder) ? 1 : 0;
    const std::optional<std::string> change = store.change_of(job);
    changed += change ? 1 : 0;
    if (!first) first = change;
  }
  base::require(!reported || known > 0,
                "{}: holds the report of other trainings{}; none of them belongs to this recipe, so all {} would be "
                "trained and the report replaced; choose another --out, or confirm with --again",
                folder, first ? fmt::format(" ({})", *first) : "", jobs.size());
  if (changed > 0)
    base::log_warning(
        "{}: {} of {} trainings have changed settings ({}) and are trained again; earlier runs stay in {}{}", folder,
        changed, jobs.size(), *first, base::join_path(folder, "runs"), reported ? ", the report is replaced" : "");
}

/// Threads of each training where `parallel` run side by side on a machine.
int64_t threads_of(const ComparisonOptions& options, int64_t parallel) {
  return options.threads > 0 ? options.threads : std::max<int64_t>(1, base::usable_cores() / parallel);
}

/// The most threads of a training: its recipe names them, or it has `otherwise`.
int64_t most_threads(const std::vector<CompareJob>& jobs, int64_t otherwise) {
  int64_t threads = 1;
  for (const CompareJob& job : jobs) {
    const int64_t own = job.recipe.train.threads;
    threads = std::max<int64_t>(threads, own > 0 ? own : otherwise);
  }
  return threads;
}

/// Arguments of the processes that train.
std::vector<std::string> job_arguments(const ComparisonOptions& options) {
  std::vector<std::string> words;
  if (options.device) words.insert(words.end(), {"--device", *options.device});
  if (options.threads > 0) words.insert(words.end(), {"--threads", std::to_string(options.threads)});
  return words;
}

void require_shared(const ComparisonOptions& options, const recipes::RecipeFile& file) {
  base::require(
      !options.jobs || *options.jobs == options.group->size(),
      "compare: --jobs: each of the {} ranks of this job runs one training at a time; expected {} or nothing, "
      "found {}",
      options.group->size(), options.group->size(), options.jobs.value_or(0));
  auto entries = distributed::program_entries();
  entries.emplace_back("recipe",
                       base::sha256(fmt::format("{}\n{}\n{}", base::to_toml(file.root()), fmt::join(options.set, "\n"),
                                                fmt::join(options.only, "\n"))));
  options.group->require_same(entries, "compare");
}

}  // namespace

ComparisonOutcome run_comparison(const ComparisonOptions& options) {
  base::require(!options.seeds || (*options.seeds >= 1 && *options.seeds <= 1000),
                "compare: --seeds: expected 1 to 1000, found {}", options.seeds.value_or(0));
  base::require(!options.jobs || (*options.jobs >= 1 && *options.jobs <= 1024),
                "compare: --jobs: expected 1 to 1024, found {}", options.jobs.value_or(0));
  experiment::device_named(options.device);
  recipes::RecipeFile file = recipes::RecipeFile::read(options.recipe, options.set);
  base::require(!file.studies().empty(),
                "{}: has no [[study]] to compare and no [sweep]; `mnemo train` trains one model, `mnemo help recipe` "
                "shows the keys of a study",
                options.recipe);
  if (!options.only.empty()) file.keep_only(options.only);
  check_same_data(file);
  ComparisonOutcome outcome;
  outcome.folder = options.out.empty() ? "runs/" + std::filesystem::path(options.recipe).stem().string() : options.out;
  const std::vector<std::string> arguments = job_arguments(options);
  const auto guarded = [&] { return options.stop_guard ? options.stop_guard() : nullptr; };
  if (options.group) {
    require_shared(options, file);
    if (options.group->rank() != 0) {
      const std::shared_ptr<void> guard = guarded();
      outcome.stopped = run_shared_trainings(*options.group, {},
                                             {.threads = threads_of(options, options.group->place().local_size),
                                              .arguments = arguments,
                                              .should_stop = options.should_stop,
                                              .wishes = options.wishes});
      return outcome;
    }
  }
  const std::optional<std::string> before = reported_in(outcome.folder);
  base::require(!before || *before == file.name(),
                "{}: holds the comparison '{}', whose report would be replaced; choose another --out", outcome.folder,
                before.value_or(""));
  RunStore store(outcome.folder);
  ComparePlan plan = plan_of(file, options, store);
  const int64_t parallel = options.here    ? 1
                           : options.group ? options.group->size()
                                           : std::min<int64_t>(options.jobs.value_or(base::usable_cores()),
                                                               static_cast<int64_t>(plan.jobs.size()));
  const int64_t shared = options.here
                             ? at::get_num_threads()
                             : threads_of(options, options.group ? options.group->place().local_size : parallel);
  const int64_t threads = options.threads > 0 ? options.threads : most_threads(plan.jobs, shared);
  base::log_info("{}: {}, {} at a time with {} each, into {}", file.name(),
                 base::counted(static_cast<int64_t>(plan.jobs.size()), "training"), parallel,
                 threads == 1 ? "one thread" : fmt::format("{} threads", threads), outcome.folder);

  Supervisor supervisor(std::move(plan.jobs), store, options.again);
  outcome.trainings = supervisor.jobs().size();
  // Variants that are named may be new in a folder of the same comparison.
  if (!options.again) say_changes(supervisor, store, before && options.only.empty(), outcome.folder);
  const Supervisor::Options how{.parallel = parallel,
                                .threads = shared,
                                .arguments = arguments,
                                .program = options.program,
                                .should_stop = options.should_stop,
                                .wishes = options.wishes};
  std::shared_ptr<void> guard = guarded();
  outcome.stopped = options.here    ? supervisor.run_here(options.device, options.should_stop)
                    : options.group ? supervisor.run_on_ranks(*options.group, how)
                                    : supervisor.run(how);
  guard.reset();
  outcome.finished = supervisor.finished();
  outcome.status = supervisor.status();
  if (outcome.stopped != 0) return outcome;

  Comparison& comparison = outcome.comparison = heading(file, options, plan, supervisor.jobs().size());
  comparison.jobs = parallel;
  comparison.threads = threads;
  for (size_t i = 0; i < supervisor.jobs().size(); ++i) comparison.seconds += supervisor.result(i).value().seconds;
  comparison.studies = collect(file, plan, supervisor);
  base::write_file_atomic(base::join_path(outcome.folder, "results.json"),
                          base::to_json(to_node(comparison), 1) + "\n");
  base::write_file_atomic(base::join_path(outcome.folder, "results.md"), to_markdown(comparison));
  outcome.report = base::join_path(outcome.folder, "report.html");
  base::write_file_atomic(outcome.report, report::report_html(comparison));
  return outcome;
}

}  // namespace mnemo::study
