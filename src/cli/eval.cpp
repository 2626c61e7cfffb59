#include <chrono>
#include <memory>

#include "base/text_table.h"
#include "cli/application.h"
#include "cli/command.h"
#include "cli/device.h"
#include "cli/output.h"
#include "cli/sample_task.h"
#include "cli/summary.h"
#include "cli/workbench.h"
#include "infer/evaluate.h"
#include "tasks/language_model.h"

namespace mnemo::cli {
namespace {

struct EvalArguments {
  std::string model;
  std::optional<std::string> data;
  std::optional<std::string> part, documents, separator, device, precision;
  std::optional<int64_t> segment_size;
  int64_t batch = 1;
  bool json = false;
};

/// What was measured, with what is not a metric beside it.
struct Measured {
  std::string what;
  int64_t targets = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

Measured measure_text(const StoredModel& stored, std::shared_ptr<const data::TokenStore> text,
                      const EvalArguments& options, std::string what, bool reset_segments) {
  base::require(text->size() > 1, "{}: too short: {} tokens, at least 2 are needed", what, text->size());
  const data::Tokenizer& tokenizer = *stored.tokenizer;
  const int64_t batch = std::min(options.batch, text->size() - 1);
  const metrics::Likelihood likelihood =
      options.precision ? infer::evaluate_text(*make_engine(models::language_model(stored.model, "eval: --precision"), options.precision, "eval"), text)
                        : tasks::evaluate_text(*stored.model, text, {batch, options.segment_size.value_or(0), reset_segments});
  Measured measured{std::move(what), likelihood.count(), {}};
  measured.metrics = tasks::describe_likelihood(likelihood, tokenizer.type(), text->characters_per_token()).metrics;
  if (tokenizer.type() != "bytes") {
    const double bytes_per_token = static_cast<double>(text->text_bytes()) / static_cast<double>(text->size());
    measured.metrics.emplace_back("bits_per_byte", likelihood.bits_per(bytes_per_token));
  }
  return measured;
}

/// A part of the data that the model's own recipe names.
Measured measure_own(const StoredModel& stored, const Recipe& recipe, const EvalArguments& options) {
  base::require(!options.documents, "eval: --documents goes with --data; the run's recipe has its own rule");
  const std::string name = options.part.value_or("valid");
  const data::Part part = data::part_of(name, "eval: --part");
  if (recipe.is_text()) {
    base::require(stored.tokenizer != nullptr, "{}: has no vocabulary", options.model);
    const data::TextOptions text = text_options(recipe);
    base::require(text.reset == "documents" || !options.precision, "eval: --precision: the recipe has data.reset = \"segments\", and the decoding engine "
                  "carries its memory on; leave the option out");
    const data::TextSplit split = data::split_text(text);
    const std::optional<data::TextSource> source = part == data::Part::train ? split.train : part == data::Part::valid ? split.valid : split.test;
    base::require(source.has_value(), "{}: its recipe has no {} part; give a text with --data", options.model, name);
    return measure_text(stored, data::encode_text(*stored.tokenizer, *source, text.document_rule()), options, name + " part of " + text.train,
                        text.reset == "segments");
  }
  base::require(!options.segment_size, "eval: --segment-size goes with texts");
  base::require(!options.precision, "eval: --precision goes with texts");
  // Of made tasks there are as many samples as one likes; a file, or a set of expressions, is measured whole.
  const int64_t samples = recipe.data_type() == "algorithmic" ? recipe.train.eval_samples : INT64_MAX;
  const auto found = make_sample_task(recipe, {options.batch, samples}).task->evaluate(*stored.model, part);
  base::require(found.has_value(), "{}: its recipe has no {} part", options.model, name);
  return {describe_samples(recipe) + " Part " + name + ".", found->predictions, found->metrics};
}

int evaluate(const EvalArguments& options) {
  base::require(options.batch >= 1 && options.batch <= 1 << 20, "eval: --batch: expected 1 to {}, found {}", 1 << 20, options.batch);
  base::require(!options.segment_size || (*options.segment_size >= 1 && *options.segment_size <= 1 << 20),
                "eval: --segment-size: expected 1 to {}, found {}", 1 << 20, options.segment_size.value_or(0));
  const at::Device device = device_named(options.device);
  base::require(!options.precision || (options.batch == 1 && !options.segment_size),
                "eval: --precision: the decoding engine reads one stream in the model's own segments; leave --batch and --segment-size out");
  const std::string folder = model_folder(options.model);
  const StoredModel stored = read_model(folder);
  move_to(*stored.model, device);
  choose_threads(stored.model->parameters().count(), options.batch * options.segment_size.value_or(stored.model->segment_size()));
  const auto begin = std::chrono::steady_clock::now();
  Measured measured;
  if (options.data) {
    base::require(!options.part, "eval: --part goes with a run's own data; drop it or --data");
    base::require(stored.tokenizer != nullptr, "{}: has no vocabulary: it was trained on a made task, not on a text", folder);
    const auto rule = data::DocumentRule::parse(options.documents.value_or("none"), options.separator.value_or(""));
    const auto text = data::encode_text(*stored.tokenizer, data::TextSource(*options.data), rule);
    measured = measure_text(stored, text, options, *options.data, false);
  } else {
    const std::optional<Recipe> recipe = recipe_beside(folder);
    base::require(recipe.has_value(), "eval: {} lies in no run's folder, so its data are unknown; give a text with --data FILE", folder);
    measured = measure_own(stored, *recipe, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (options.json) {
    base::Node node = base::Node::table({{"model", folder}, {"data", measured.what}, {"predictions", measured.targets}, {"seconds", seconds}});
    for (const auto& [name, value] : measured.metrics) node.set(name, json_number(value));
    print_json(node);
    return kDone;
  }
  base::TextTable table({"metric", "value"}, {base::TextTable::Align::left, base::TextTable::Align::right});
  for (const auto& [name, value] : measured.metrics) table.add_row({name, fmt::format("{:.5f}", value)});
  table.add_row({"predictions", grouped(measured.targets)});
  table.add_row({"seconds", fmt::format("{:.2f}", seconds)});
  print(measured.what + "\n" + table.text());
  return kDone;
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalArguments>();
  Command(app, "eval", "measures a model on held-out data, in one pass with its memory carried along")
      .argument("MODEL", options->model, "a model folder, or a run's folder")
      .option("--data", options->data, "FILE", "a text; without: the held-out part of the run's own data")
      .option("--part", options->part, "PART", "of the run's own data: valid, test or train (valid)")
      .option("--segment-size", options->segment_size, "N", "tokens a segment (as trained)")
      .option("--batch", options->batch, "N", "parts of the text side by side; 1: every token sees all that came before it")
      .option("--documents", options->documents, "RULE", "where memory starts again: none, blank_line, heading or line (none)")
      .option("--separator", options->separator, "LINE", "the line that ends a document, for --documents line")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (cpu)")
      .option("--precision", options->precision, "P", "by the decoding engine with weights of float32, bf16 or int8; without: as trained")
      .flag("--json", options->json, "print JSON")
      .footer("mnemo eval runs/mine/model --data other.txt")
      .action([options] { return evaluate(*options); });
}

}  // namespace mnemo::cli
