#include "study/compare_job.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/folder_lock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/text_format.h"
#include "base/utf8.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "infer/session.h"
#include "infer/text_session.h"
#include "inspect/cost.h"
#include "inspect/draw/span_picture.h"
#include "inspect/model_summary.h"
#include "models/kinds.h"
#include "runs/run_record.h"
#include "runs/training.h"
#include "train/trainer.h"

namespace mnemo::study {
namespace {

constexpr const char* kJobFile = "job.json";
constexpr int kOutOfTime = -1;  // not a signal number

/// Nothing if the number is not finite: JSON cannot represent it, and tables show "–".
std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

std::vector<CurvePoint> curve_of(const train::History& history, const tasks::Task& task) {
  std::vector<CurvePoint> curve;
  for (const train::LossPoint& point : history.losses) {
    curve.push_back(
        {point.step, point.tokens, point.seconds, finite(task.metric_of_loss(point.loss).value_or(point.loss)), {}});
  }
  for (const train::EvaluationPoint& point : history.evaluations) {
    auto at = std::find_if(curve.begin(), curve.end(),
                           [&](const CurvePoint& other) { return other.step >= point.step; });
    if (at == curve.end() || at->step != point.step)
      at = curve.insert(at, {point.step, point.tokens, point.seconds, {}, {}});
    at->held_out = finite(point.evaluation.at(task.metric()));
  }
  return curve;
}

/// Speed of token-by-token generation from a position: the median over rounds that all start from the same position.
double generation_speed(const infer::Session& start, int64_t position, const std::vector<int64_t>& text) {
  constexpr int kRounds = 5;
  constexpr int64_t kTokens = 64;
  infer::Session session = start;
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < position; ++i) tokens.push_back(text[static_cast<size_t>(i) % text.size()]);
  session.feed(tokens);
  std::vector<double> speeds;
  for (int round = 0; round < kRounds; ++round) {
    infer::Session fork = session.fork();
    const auto begin = std::chrono::steady_clock::now();
    fork.generate(kTokens, [](int64_t) { return true; });
    speeds.push_back(static_cast<double>(kTokens) /
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(speeds.begin(), speeds.end());
  return speeds[kRounds / 2];
}

/// Real text to read before speed is measured: the prompt alone could be one symbol repeated.
std::vector<int64_t> reading_text(const data::TextOptions& text, const text::Tokenizer& tokenizer) {
  const text::TextSource source = data::split_text(text).train;
  std::string bytes;
  source.for_each_chunk([&](std::string_view chunk) {
    bytes.append(chunk.substr(0, 1 << 16));
    return false;
  });
  const std::vector<int32_t> ids = tokenizer.encode(base::take_valid_utf8(bytes, false));
  return {ids.begin(), ids.end()};
}

/// A trained model must not be lost because one result cannot be shown, for example because its table of positions is
/// shorter than the text to read.
void unless_refused(const char* what, const std::function<void()>& show) {
  try {
    show();
  } catch (const base::InputError& error) {
    base::log_warning("skipped {}: {}", what, error.what());
  }
}

void measure_generation(const experiment::Experiment& bench, const data::TextOptions& data,
                        const std::function<bool()>& goes_on, RunResult& result) {
  const recipes::Writing& writing = bench.recipe.generate;
  infer::Session start = infer::fastest_session(bench.model, writing.options);
  start.set_reset_segments(data.resets_segments());
  const std::vector<int64_t> text = reading_text(data, *bench.tokenizer);
  unless_refused("a sample", [&] {
    infer::TextSession writer(start, bench.tokenizer);
    writer.feed(writing.prompt);
    result.prompt = writing.prompt;
    writer.generate(writing.options, [&](std::string_view piece) {
      result.sample += piece;
      return goes_on();
    });
    result.sample += writer.finish();
  });
  const auto speed = [&](const char* what, int64_t position, std::optional<double>& at) {
    if (!goes_on()) return;
    unless_refused(what, [&] { at = finite(generation_speed(start, position, text)); });
  };
  speed("the speed of generation at 64", 64, result.tokens_per_second_64);
  speed("the speed of generation at 4096", 4096, result.tokens_per_second_4096);
}

/// Tokens before a prediction that its loss reaches in training: those of the segments that gradients cross into, and
/// what a layer sees to the left of a segment (Bulatov et al. 2022, figure 6).
int64_t visible_context(const experiment::Experiment& bench, const models::TextModel& model,
                        const inspect::ModelSummary& facts) {
  const int64_t segment = model.segment_size(), row = bench.tokens_per_step / bench.recipe.train.batch_size;
  const auto task = bench.recipe.task();
  if (task->text() != nullptr && task->text()->resets_segments()) return segment;
  const int64_t most = (row + segment - 1) / segment - 1 + bench.recipe.train.replay;  // boundaries in a step
  const int64_t crossed = experiment::crossed_boundaries(model, most);
  int64_t beside = 0;
  for (const models::LayerTable& of : facts.tables) beside = std::max(beside, of.table.num_context());
  return segment * (1 + crossed) + beside;
}

void show_model(const experiment::Experiment& bench, RunResult& result) {
  const models::Model& model = *bench.model;
  const inspect::ModelSummary facts = inspect::summarize(model);
  const auto count_flops = [&](const auto& one) {
    const inspect::ModelCost cost = inspect::count_cost(one);
    result.mflops = static_cast<double>(cost.total.flops) / 1e6 /
                    static_cast<double>(std::max<int64_t>(1, cost.segment_size));
  };
  models::visit(model, models::Overloaded{
                           [&](const models::TextModel& text) {
                             result.visible_context = visible_context(bench, text, facts);
                             count_flops(text);
                           },
                           [&](const models::ImageModel& images) { count_flops(images); },
                           [](const models::PairModel&) {},
                       });
  result.state_bytes = facts.full_state_bytes();
  result.model_state_bytes = facts.model_state_bytes;
  for (const models::LayerTable& of : facts.tables)
    result.masks.push_back({{of.layers.begin(), of.layers.end()}, of.table.draw(), inspect::svg_of(of.table)});
  result.cache_share = facts.cache_share;
}

}  // namespace

StudyMetric metric_of(const recipes::Recipe& recipe, const std::string& name) {
  const auto task = recipe.task();
  const tasks::MetricInfo metric = task->metric_named(name);
  const bool own = metric.key() == task->metric().key();
  return {.key = own ? std::string() : metric.key(),
          .name = metric.name,
          .short_name = metric.short_name,
          .loss_name = metric.loss_name,
          .counted = task->counted(),
          .higher_is_better = metric.higher_is_better,
          .percent = metric.percent,
          .share = metric.share,
          .generates = task->text() != nullptr,
          .chance = own ? task->chance(recipe.model) : std::nullopt};
}

void write_job(const CompareJob& job) {
  base::write_file_atomic(base::join_path(job.folder, "recipe.toml"), base::to_toml(base::write_options(job.recipe)));
  const base::Node node = base::Node::table({{"study", job.study},
                                             {"variant", job.variant},
                                             {"point", job.point},
                                             {"seed", job.seed},
                                             {"max_seconds", job.max_seconds},
                                             {"recipe", base::write_options(job.recipe)}});
  base::write_file_atomic(base::join_path(job.folder, kJobFile), base::to_json(node) + "\n");
}

CompareJob read_job(const std::string& folder) {
  const std::string path = base::join_path(folder, kJobFile);
  const base::Node node = base::parse_json(base::read_file(path, 1 << 20), path);
  const base::Node* point = node.find("point");
  return {node.at("study").as_string(),
          node.at("variant").as_string(),
          point == nullptr ? "" : point->as_string(),
          folder,
          node.at("seed").as_int(),
          node.at("max_seconds").as_double(),
          recipes::read_recipe(node.at("recipe"))};
}

std::string training_text(const CompareJob& job) {
  base::Node recipe = base::write_options(job.recipe);
  recipe.erase("name");
  recipe.erase("about");
  return base::to_json(base::Node::table({{"max_seconds", job.max_seconds}, {"recipe", std::move(recipe)}}), -1);
}

void remove_checkpoints(const std::string& folder) {
  for (const std::string& name : base::list_folder(folder)) {
    if (name.starts_with("step-")) base::remove_tree(base::join_path(folder, name));
  }
}

namespace {

/// What a training measured, as it is compared. Throws NotFinite if the metric is not a number.
RunResult result_of(const CompareJob& job, const experiment::Experiment& bench, const train::TrainReport& report,
                    const tasks::Evaluation& measured) {
  RunResult result{.study = job.study, .variant = job.variant, .point = job.point, .seed = job.seed};
  result.peak_memory = base::peak_memory();
  result.value = finite(measured.at(bench.task->metric()));
  result.predictions = measured.predictions;
  for (const auto& [name, value] : measured.metrics) {
    if (name == "nll") result.loss = finite(value);  // detectors have none
    result.metrics.push_back({name, finite(value)});
  }
  if (!result.value)
    throw base::NotFinite(
        fmt::format("the held-out {} is not finite after {} steps", bench.task->metric(), report.steps));
  result.steps = report.steps;
  result.tokens = report.tokens;
  result.seconds = report.seconds;
  result.train_tokens_per_second = finite(runs::tokens_per_second(bench, report));
  result.curve = curve_of(report.history, *bench.task);
  result.parameters = bench.model->parameters().count();
  return result;
}

/// Repeats this training alone.
std::string command_of(const CompareJob& job, const std::optional<std::string>& device) {
  return fmt::format("mnemo {} {}{}", job.recipe.finetune ? "finetune" : "train",
                     base::shell_quoted(base::join_path(job.folder, "recipe.toml")),
                     device ? " --device " + *device : "");
}

int run_locked(const CompareJob& job, const base::FolderLock& lock, const std::optional<std::string>& device,
               const JobHooks& asked) {
  const at::Device where = experiment::device_named(device);
  experiment::Experiment bench = experiment::make_experiment(job.recipe);
  base::require(bench.task->has(data::Part::valid),
                "compare: the data has no held-out part; set data.valid or a data.valid_fraction above 0");
  experiment::settle_fresh(bench, true);
  if (where.is_cpu()) experiment::require_step_fits(bench);
  experiment::move_to(*bench.model, where);
  train::Trainer trainer(*bench.model, *bench.task, bench.recipe.train, job.folder, experiment::model_files(bench));
  try {
    if (trainer.resume_latest()) base::log_info("resuming after step {}", trainer.steps_done());
  } catch (const base::InputError& error) {
    base::log_warning("{}; starting from scratch", error.what());
    remove_checkpoints(job.folder);
    return run_locked(job, lock, device, asked);
  }
  const std::shared_ptr<void> guard = asked.stop_guard ? asked.stop_guard() : nullptr;
  const auto stopped = [&] { return asked.should_stop ? asked.should_stop() : 0; };
  train::RunHooks hooks;
  hooks.show_progress = false;
  hooks.on_loss = [&](const train::LossPoint& point) {
    if (asked.on_loss) asked.on_loss(point.step, point.loss);
  };
  hooks.on_step = asked.on_step;
  hooks.should_stop = [&] {
    if (const int reason = stopped(); reason != 0) return reason;
    return job.max_seconds > 0 && trainer.seconds() > job.max_seconds ? kOutOfTime : 0;
  };
  runs::RunRecord record(bench, trainer, job.folder, lock,
                         {.title = job.variant + (job.point.empty() ? "" : ", " + job.point),
                          .command = command_of(job, device),
                          .resume = "the same mnemo compare again"});
  record.listen(hooks);
  train::TrainReport report = trainer.run(hooks);
  std::optional<train::EvaluationPoint> evaluation;
  if (const train::EvaluationPoint* shown = trainer.take_best()) evaluation = *shown;
  if (report.stopped == 0 || report.stopped == kOutOfTime) trainer.take_average();
  if (report.stopped == kOutOfTime || (report.stopped == 0 && !evaluation)) {
    if (auto found = bench.task->evaluate(*bench.model, data::Part::valid)) {
      evaluation = train::EvaluationPoint{report.steps, report.tokens, report.seconds, std::move(*found)};
      report.history.add(*evaluation);
    }
  } else if (report.stopped != 0) {
    record.stopped(report);
    return report.stopped;
  }
  experiment::move_to(*bench.model, at::kCPU);

  const tasks::Evaluation& measured = evaluation.value().evaluation;
  RunResult result = result_of(job, bench, report, measured);
  unless_refused("the size of its state and its cost", [&] { show_model(bench, result); });
  for (const train::LossPoint& point : report.history.losses) {
    if (!point.scalars.empty()) result.cache_share_curve.push_back({point.step, inspect::cache_shares(point.scalars)});
  }
  const auto task = bench.recipe.task();
  result.sees_ahead = bench.model->sees_ahead();
  if (task->text() != nullptr && !result.sees_ahead)
    measure_generation(
        bench, *task->text(), [&] { return stopped() == 0; }, result);
  // After the last checkpoint; the next time begins here.
  if (const int reason = stopped(); reason != 0) {
    record.stopped(report);
    return reason;
  }
  experiment::write_model(base::join_path(job.folder, "model"), bench,
                          {.title = job.variant,
                           .command = command_of(job, device),
                           .metrics = measured.metrics,
                           .steps = report.steps,
                           .tokens = report.tokens,
                           .seconds = report.seconds});
  record.finished(report, evaluation);
  if (job.recipe.train.report)
    result.page = base::join_path("runs", std::filesystem::path(job.folder).lexically_normal().filename().string()) +
                  "/" + runs::RunPageWriter::kFile;
  write_result(base::join_path(job.folder, "result.json"), result);
  remove_checkpoints(job.folder);
  return 0;
}

}  // namespace

int run_job(const CompareJob& job, const std::optional<std::string>& device, const JobHooks& hooks) {
  const base::FolderLock lock(job.folder);
  return run_locked(job, lock, device, hooks);
}

}  // namespace mnemo::study
