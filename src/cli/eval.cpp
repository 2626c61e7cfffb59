#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/exit_status.h"
#include "base/json_value.h"
#include "base/output.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/ranks.h"
#include "experiment/device.h"
#include "experiment/measure.h"
#include "models/kinds.h"
#include "ops/linear/packed_linear.h"
#include "tasks/types/images.h"

namespace mnemo::cli {
namespace {

struct EvalArguments {
  std::string model;
  experiment::MeasureOptions measure;
  std::optional<std::string> checkpoint, device;
  bool json = false;
  Ranks ranks{.command = "eval"};
};

/// Rows that a sample brings to the layers, roughly.
int64_t rows_per_sample(const bundle::Bundle& stored, const experiment::MeasureOptions& options) {
  constexpr int64_t kRowsOfASentence = 32;
  return models::visit(*stored.model, models::Overloaded{
                                          [](const models::ImageModel&) { return tasks::ImageSpec::kRowsOfAnImage; },
                                          [](const models::PairModel&) { return kRowsOfASentence; },
                                          [&](const models::TextModel& text) {
                                            return options.segment_size.value_or(text.segment_size());
                                          },
                                      });
}

/// Notes for people: "left_out" as "left out", and "translated" with "translated_of" as "translated: 8 of 20".
std::string notes_text(const std::vector<std::pair<std::string, base::Node>>& notes) {
  std::string text;
  for (const auto& [name, value] : notes) {
    const std::string said = value.is_string() ? value.as_string() : base::to_json(value, -1);
    if (name.ends_with("_of") && !text.empty()) {
      text.replace(text.size() - 1, 1, " of " + said + "\n");
      continue;
    }
    std::string words = name;
    std::ranges::replace(words, '_', ' ');
    text += words + ": " + said + "\n";
  }
  return text;
}

int evaluate_alone(const EvalArguments& options, const std::shared_ptr<distributed::Group>& group) {
  const at::Device device = experiment::device_named(options.device, group.get());
  const bundle::Bundle stored = bundle::read_bundle(options.model, options.checkpoint);
  experiment::move_to(*stored.model, device);
  choose_threads(stored.model->parameters().count(), options.measure.batch * rows_per_sample(stored, options.measure));
  const auto begin = std::chrono::steady_clock::now();
  experiment::MeasureOptions measure = options.measure;
  measure.group = group;
  begin_sharing(group, "eval", *stored.model);
  const experiment::Measured measured = experiment::measure(stored, measure);
  if (group) group->leave();
  if (group && group->rank() != 0) return base::kDone;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (options.json) {
    base::Node node = base::Node::table({{"model", stored.folder},
                                         {"data", measured.what},
                                         {"predictions", measured.predictions},
                                         {"unknown", measured.unknown},
                                         {"seconds", seconds}});
    for (const auto& [name, value] : measured.metrics) node.set(name, base::json_number(value));
    for (const auto& [name, value] : measured.notes) node.set(name, value);
    base::print_json(node);
    return base::kDone;
  }
  base::TextTable table({"metric", "value"}, {base::TextTable::Align::left, base::TextTable::Align::right});
  for (const auto& [name, value] : measured.metrics) table.add_row({name, fmt::format("{:.5f}", value)});
  table.add_row({"predictions", base::grouped(measured.predictions)});
  table.add_row({"seconds", fmt::format("{:.2f}", seconds)});
  base::print(measured.what + "\n" + table.text(base::output_columns()) + notes_text(measured.notes));
  return base::kDone;
}

int evaluate(const EvalArguments& options) {
  options.measure.validate();
  return on_ranks(options.ranks, "",
                  [&](const std::shared_ptr<distributed::Group>& group) { return evaluate_alone(options, group); });
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalArguments>();
  Command command(app, "eval", "measure a model on held-out data, in one pass that carries its memory along");
  command.argument("MODEL", options->model, "a model folder, a run's folder or a checkpoint")
      .option(
          "--checkpoint", options->checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option(
          "--data", options->measure.data, "FILE",
          "data like data.train of its run: a text, pairs in columns or labelled texts; for an image model the "
          "folder of an image set, for a detector annotated images (default: the held-out part of the run's own data)")
      .option("--translated", options->measure.translated, "N",
              "translation model: number of pairs to translate for BLEU and chrF, evenly spread (by documents the "
              "first), at most all (default: the recipe's)")
      .option("--part", options->measure.part, "PART",
              "part of the run's own data or of an image set: valid, test or train (default valid; a set without "
              "parts: all)")
      .option("--task", options->measure.task, "NAME",
              "image model: the head to measure; \"base\" is the model's own (default: the task that the run trained, "
              "or base)")
      .option("--segment-size", options->measure.segment_size, "N", "tokens a segment (as trained)")
      .option("--context", options->measure.context, "N",
              "tokens of a segment to read before the scored ones, for models with independent segments (default: as "
              "the run evaluated)")
      .option("--batch", options->measure.batch, "N",
              "parts of the text, or samples, to read in parallel; with 1 every token sees the whole text before it")
      .option("--documents", options->measure.documents, "RULE",
              "what separates documents, where memory is reset: none, blank_line, heading or line (default none)")
      .option("--separator", options->measure.separator, "LINE", "the line that ends a document, for --documents line")
      .option("--reset", options->measure.reset, "RULE",
              "when memory is reset in a text: documents: only between documents; segments: at every segment (default: "
              "as trained)")
      .option(
          "--memory", options->measure.memory, "WHAT",
          "replace the memory at the start of every segment by zeros or noise: a model that uses its memory gets worse")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (cpu)")
      .option("--precision", options->measure.precision, "P",
              fmt::format("use the decoding engine with weights in one of {} (default: the model as trained)",
                          fmt::join(ops::precision_names(), ", ")))
      .option("--kv-precision", options->measure.kv_precision, "P",
              "use the decoding engine with keys and values in auto or int8 (docs/generation.md)");
  add_ranks(command, options->ranks, "measure on N processes of this machine, each with its share");
  command.flag("--strict", options->measure.strict, "refuse a text with characters or words outside the vocabulary")
      .flag("--json", options->json, "print JSON")
      .footer(
          "mnemo eval runs/mine/model --data other.txt\nmnemo eval models/vit --data photos\nmnemo eval runs/rmt "
          "--memory zeros")
      .action([options] { return evaluate(*options); });
}

}  // namespace mnemo::cli
