#include <chrono>
#include <map>
#include <memory>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "bundle/model_heads.h"
#include "bundle/preprocessing.h"
#include "cli/application.h"
#include "cli/command.h"
#include "data/images/image_describe.h"
#include "data/images/image_set.h"
#include "experiment/device.h"
#include "experiment/experiment.h"
#include "experiment/sample_task.h"
#include "infer/evaluate.h"
#include "models/build.h"
#include "study/summary.h"
#include "tasks/images.h"
#include "tasks/language_model.h"

namespace mnemo::cli {
namespace {

struct EvalArguments {
  std::string model;
  std::optional<std::string> data;
  std::optional<std::string> part, documents, separator, reset, device, precision, task;
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

Measured measure_text(const experiment::StoredModel& stored, std::shared_ptr<const data::TokenStore> text,
                      const EvalArguments& options, std::string what, bool reset_segments) {
  base::require(text->size() > 1, "{}: too short: {} tokens, at least 2 are needed", what, text->size());
  const data::Tokenizer& tokenizer = *stored.tokenizer;
  const int64_t batch = std::min(options.batch, text->size() - 1);
  if (options.reset) reset_segments = *options.reset == "segments";
  const metrics::Likelihood likelihood = options.precision
                                             ? infer::evaluate_text(
                                                   *experiment::make_engine(
                                                       models::language_model(stored.model, "eval: --precision"),
                                                       options.precision, "eval"),
                                                   text, reset_segments)
                                             : tasks::evaluate_text(
                                                   *stored.model, text,
                                                   {batch, options.segment_size.value_or(0), reset_segments});
  Measured measured{std::move(what), likelihood.count(), {}};
  measured.metrics = tasks::describe_likelihood(likelihood, tokenizer.type(), text->characters_per_token()).metrics;
  if (tokenizer.type() != "bytes") {
    const double bytes_per_token = static_cast<double>(text->text_bytes()) / static_cast<double>(text->size());
    measured.metrics.emplace_back("bits_per_byte", likelihood.bits_per(bytes_per_token));
  }
  return measured;
}

/// Number of the head of each class of the data: by name where the head has a class of each name, by order where it has
/// as many classes.
std::vector<int32_t> matched_classes(const std::vector<std::string>& classes, const bundle::ModelHead& head,
                                     const std::string& what) {
  std::map<std::string, int32_t> numbers;
  for (size_t i = 0; i < head.labels.size(); ++i) numbers.emplace(head.labels[i], static_cast<int32_t>(i));
  const bool unique = numbers.size() == head.labels.size();
  std::vector<int32_t> matched, in_order;
  const std::string* unknown = nullptr;
  for (const std::string& name : classes) {
    const auto found = numbers.find(name);
    if (found == numbers.end() && unknown == nullptr) unknown = &name;
    matched.push_back(found == numbers.end() ? -1 : found->second);
    in_order.push_back(static_cast<int32_t>(in_order.size()));
  }
  if (unknown == nullptr && unique) return matched;
  const std::string why = unknown != nullptr ? fmt::format("class {} of the data is none of the head '{}'",
                                                           base::in_quotes(*unknown), head.name)
                                             : fmt::format("the head '{}' has classes of the same name", head.name);
  base::require(static_cast<int64_t>(classes.size()) == head.num_classes,
                "eval: {}: {}, and its {} classes cannot be matched by order with the data's {}", what, why,
                head.num_classes, classes.size());
  if (!head.labels.empty()) base::log_warning("eval: {}: {}: classes are matched by order", what, why);
  return in_order;
}

/// The task that the run has taught, or the model's own head; --task chooses another. From now on it answers.
bundle::ModelHead answering_head(core::Model& model, const std::string& folder,
                                 const std::optional<experiment::Recipe>& recipe, const EvalArguments& options) {
  auto* vision = dynamic_cast<models::VisionModel*>(&model);
  base::ensure(vision != nullptr, "a model of images of another kind");
  const std::vector<bundle::ModelHead> heads = bundle::heads_of(*vision, folder);
  const bool taught = recipe && recipe->finetune && recipe->finetune->regime != "full";
  const bundle::ModelHead& head = bundle::head_named(
      heads, options.task.value_or(taught ? recipe->finetune->name : heads.front().name), "eval: --task");
  vision->answer_for(head.name);
  return head;
}

Measured measure_images(const experiment::StoredModel& stored, const data::ImageOptions& images,
                        std::optional<std::string> part, const bundle::ModelHead& head, const EvalArguments& options,
                        const std::string& what) {
  base::require(!options.segment_size && !options.precision && !options.documents && !options.reset,
                "eval: --segment-size, --precision, --documents and --reset go with texts");
  data::ImageSets sets = data::load_images(images);
  if (!part) part = sets.valid ? "valid" : sets.test ? "test" : "train";
  const data::Part wanted = data::part_of(*part, "eval: --part");
  base::require(sets.part(wanted) != nullptr, "{}: has no part {}", what, *part);
  const std::vector<int32_t> numbers = matched_classes(sets.train->classes(), head, what);
  auto names = std::make_shared<std::vector<std::string>>();
  for (int64_t i = 0; i < head.num_classes; ++i) names->push_back(head.label(i));
  for (auto* set : {&sets.train, &sets.valid, &sets.test}) {
    if (*set) *set = std::make_shared<const data::ImageSet>((*set)->with_classes(numbers, names));
  }
  const tasks::Images task(std::move(sets), images, {.eval_batch_size = options.batch, .eval_samples = INT64_MAX});
  const auto found = task.evaluate(*stored.model, wanted);
  return {fmt::format("Images of `{}`, part {}, head {}.", what, *part, head.name), found->predictions, found->metrics};
}

/// The set that lies in a folder, in the way the model reads images; all of it where it has no parts of its own.
Measured measure_image_folder(const experiment::StoredModel& stored, const std::string& folder,
                              const bundle::ModelHead& head, const EvalArguments& options) {
  data::ImageOptions images = data::detect_images(*options.data);
  images.valid_fraction = 0;
  const bundle::ImagePreprocessing facts = bundle::ImagePreprocessing::read(folder);
  images.image_size = facts.image_size;
  images.mean = facts.mean;
  images.std = facts.std;
  images.test_crop = facts.test_crop;
  return measure_images(stored, images, options.part, head, options, base::printable(*options.data, 400));
}

/// A part of the data that the model's own recipe names.
Measured measure_own(const experiment::StoredModel& stored, const std::string& folder, const experiment::Recipe& recipe,
                     const EvalArguments& options) {
  base::require(!options.documents, "eval: --documents goes with --data; the run's recipe has its own rule");
  const std::string name = options.part.value_or("valid");
  const data::Part part = data::part_of(name, "eval: --part");
  if (recipe.is_text()) {
    base::require(stored.tokenizer != nullptr, "{}: has no vocabulary", options.model);
    const data::TextOptions text = experiment::text_options(recipe);
    const data::TextSplit split = data::split_text(text);
    const std::optional<data::TextSource> source = part == data::Part::train   ? split.train
                                                   : part == data::Part::valid ? split.valid
                                                                               : split.test;
    base::require(source.has_value(), "{}: its recipe has no {} part; give a text with --data", options.model, name);
    return measure_text(stored, data::encode_text(*stored.tokenizer, *source, text.document_rule()), options,
                        name + " part of " + text.train, text.reset == "segments");
  }
  if (recipe.is_images()) {
    experiment::Recipe own = recipe;
    own.model = models::options_of(*stored.model);  // of a fine-tuning it may stand in the trained model alone
    return measure_images(stored, experiment::image_options(own), name,
                          answering_head(*stored.model, folder, recipe, options), options,
                          base::printable(experiment::image_options(own).train, 400));
  }
  base::require(!options.segment_size, "eval: --segment-size goes with texts");
  base::require(!options.precision, "eval: --precision goes with texts");
  base::require(!options.reset, "eval: --reset goes with texts");
  // Of made tasks there are as many samples as one likes; a file, or a set of expressions, is measured whole.
  const int64_t samples = recipe.data_type() == "algorithmic" ? recipe.train.eval_samples : INT64_MAX;
  const auto found = experiment::make_sample_task(recipe, {options.batch, samples}).task->evaluate(*stored.model, part);
  base::require(found.has_value(), "{}: its recipe has no {} part", options.model, name);
  return {experiment::describe_samples(recipe) + " Part " + name + ".", found->predictions, found->metrics};
}

int evaluate(const EvalArguments& options) {
  base::require(options.batch >= 1 && options.batch <= 1 << 20, "eval: --batch: expected 1 to {}, found {}", 1 << 20,
                options.batch);
  base::require(!options.segment_size || (*options.segment_size >= 1 && *options.segment_size <= 1 << 20),
                "eval: --segment-size: expected 1 to {}, found {}", 1 << 20, options.segment_size.value_or(0));
  base::require(!options.reset || *options.reset == "documents" || *options.reset == "segments",
                "eval: --reset: expected documents or segments, found '{}'",
                base::printable(options.reset.value_or("")));
  const at::Device device = experiment::device_named(options.device);
  base::require(!options.precision || (options.batch == 1 && !options.segment_size),
                "eval: --precision: the decoding engine reads one stream in the model's own segments; leave --batch "
                "and --segment-size out");
  const std::string folder = experiment::model_folder(options.model);
  const experiment::StoredModel stored = experiment::read_model(folder);
  experiment::move_to(*stored.model, device);
  const bool images = models::options_of(*stored.model).backbone.is_vision();
  base::require(images || !options.task, "eval: --task goes with a model of images");
  choose_threads(
      stored.model->parameters().count(),
      options.batch * (images ? kRowsOfAnImage : options.segment_size.value_or(stored.model->segment_size())));
  const std::optional<experiment::Recipe> recipe = options.data && !images ? std::nullopt
                                                                           : experiment::recipe_beside(folder);
  const auto begin = std::chrono::steady_clock::now();
  Measured measured;
  if (options.data && images) {
    measured = measure_image_folder(stored, folder, answering_head(*stored.model, folder, recipe, options), options);
  } else if (options.data) {
    base::require(!options.part, "eval: --part goes with a run's own data; drop it or --data");
    base::require(stored.tokenizer != nullptr, "{}: has no vocabulary: it was trained on a made task, not on a text",
                  folder);
    const auto rule = data::DocumentRule::parse(options.documents.value_or("none"), options.separator.value_or(""));
    const auto text = data::encode_text(*stored.tokenizer, data::TextSource(*options.data), rule);
    measured = measure_text(stored, text, options, *options.data, stored.reset_segments);
  } else {
    base::require(recipe.has_value(), "eval: {} lies in no run's folder, so its data are unknown; give {} with --data",
                  folder, images ? "the folder of an image set" : "a text");
    measured = measure_own(stored, folder, *recipe, options);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (options.json) {
    base::Node node = base::Node::table(
        {{"model", folder}, {"data", measured.what}, {"predictions", measured.targets}, {"seconds", seconds}});
    for (const auto& [name, value] : measured.metrics) node.set(name, base::json_number(value));
    base::print_json(node);
    return base::kDone;
  }
  base::TextTable table({"metric", "value"}, {base::TextTable::Align::left, base::TextTable::Align::right});
  for (const auto& [name, value] : measured.metrics) table.add_row({name, fmt::format("{:.5f}", value)});
  table.add_row({"predictions", base::grouped(measured.targets)});
  table.add_row({"seconds", fmt::format("{:.2f}", seconds)});
  base::print(measured.what + "\n" + table.text());
  return base::kDone;
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalArguments>();
  Command(app, "eval", "evaluate a model on held-out data")
      .argument("MODEL", options->model, "model folder or run folder")
      .option("--data", options->data, "FILE",
              "text file, or image folder for an image model (default: the held-out part of the run's data)")
      .option("--part", options->part, "PART",
              "part of the run's data or of an image set: valid, test or train (default valid; all if the set has no "
              "parts)")
      .option("--task", options->task, "NAME",
              "image models: head to evaluate; \"base\" is the model's own (default: the task trained in this run, or "
              "base)")
      .option("--segment-size", options->segment_size, "N", "tokens per segment (default: as trained)")
      .option("--batch", options->batch, "N",
              "split the text into N parallel streams; with 1, every token has the full history")
      .option("--documents", options->documents, "RULE",
              "reset memory between documents: none, blank_line, heading or line (default none)")
      .option("--separator", options->separator, "LINE", "the line that ends a document, with --documents line")
      .option("--reset", options->reset, "RULE",
              "text: reset memory only between `documents`, or between `segments` too (default: as trained)")
      .option("--device", options->device, "DEVICE", "cpu, cuda or cuda:N (default cpu)")
      .option("--precision", options->precision, "P",
              "use the decoding engine with float32, bf16 or int8 weights (default: as trained)")
      .flag("--json", options->json, "print JSON")
      .footer("mnemo eval runs/mine/model --data other.txt\nmnemo eval models/vit --data photos")
      .action([options] { return evaluate(*options); });
}

}  // namespace mnemo::cli
