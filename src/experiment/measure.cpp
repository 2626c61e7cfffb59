#include "experiment/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "core/head.h"
#include "data/images/image_describe.h"
#include "data/images/image_set.h"
#include "data/text/text_files.h"
#include "experiment/detection_recipe.h"
#include "experiment/experiment.h"
#include "experiment/same_data.h"
#include "experiment/text_classifier.h"
#include "experiment/translation_search.h"
#include "infer/evaluate.h"
#include "infer/open_text.h"
#include "infer/translator.h"
#include "models/detection_options.h"
#include "models/image_model.h"
#include "models/replaced_memory.h"
#include "models/stoppable.h"
#include "models/text_model.h"
#include "tasks/images.h"
#include "tasks/language_model.h"
#include "tasks/types/labelled_text.h"
#include "tasks/types/pairs.h"

namespace mnemo::experiment {
namespace {

/// The remedy where a recipe lacks the part to measure.
constexpr const char* kOtherPart =
    "choose another with --part (train, valid or test), give data with --data, or train with held-out data: "
    "data.valid, or data.valid_fraction = 0.05";

void require_no_text_options(const MeasureOptions& options) {
  base::require(!options.segment_size && !options.by_engine() && !options.documents && !options.separator &&
                    !options.reset && !options.context && !options.strict,
                "eval: --segment-size, --precision, --kv-precision, --documents, --separator, --reset, --context and "
                "--strict go with "
                "texts of language models");
}

/// Whether this process warns: of several, the first.
bool tells(const MeasureOptions& options) { return !options.group || options.group->rank() == 0; }

/// What is evaluated: the stored model, or the same with another memory.
std::shared_ptr<const core::Model> measured_model(const bundle::Bundle& stored, const MeasureOptions& options) {
  std::shared_ptr<const core::Model> model = stored.model;
  if (options.memory) model = models::replaced_memory(*stored.model, *options.memory, "eval: --memory");
  return models::stoppable(std::move(model), options.should_stop);
}

/// The engine of --precision or --kv-precision.
std::shared_ptr<const infer::Engine> required_engine(const bundle::Bundle& stored, const MeasureOptions& options) {
  const std::shared_ptr<models::TextModel> model = stored.text("eval: --precision");
  auto engine = infer::make_engine(model, options.precision, "eval", options.kv_precision.value_or(""));
  base::require(engine != nullptr,
                "eval: --kv-precision: the decoding engine cannot run this model: {}; leave the option out",
                infer::unsupported_reason(*model));
  return engine;
}

Measured measure_text(const bundle::Bundle& stored, std::shared_ptr<const data::TokenStore> text,
                      const MeasureOptions& options, std::string what, bool reset_segments, int64_t own_context) {
  base::require(text->size() > 1, "{}: too short: {} tokens, at least 2 are needed", what, text->size());
  const text::Tokenizer& tokenizer = *stored.tokenizer;
  text::report_unknown(tokenizer, what, text->num_unknown(), text->size(),
                       options.strict ? text::Unknown::refuse : text::Unknown::warn);
  const int64_t batch = std::min(options.batch, text->size() - 1);
  if (options.group && options.group->size() > 1) {
    base::require(!options.by_engine(),
                  "eval: --precision, --kv-precision: the decoding engine runs on one process; drop one of them");
    base::require(batch >= options.group->size(),
                  "eval: --batch: every process needs a part of the text; expected at least {}, found {}",
                  options.group->size(), batch);
  }
  if (options.reset) reset_segments = *options.reset == "segments";
  const int64_t context = options.context.value_or(reset_segments ? own_context : 0);
  models::require_next_token_model(*stored.model, "eval");
  const metrics::Likelihood likelihood = options.by_engine()
                                             ? infer::evaluate_text(*required_engine(stored, options), text,
                                                                    reset_segments, context, options.should_stop)
                                             : tasks::evaluate_text(*measured_model(stored, options), text,
                                                                    {batch, options.segment_size.value_or(0),
                                                                     reset_segments, context, options.group.get()});
  Measured measured{std::move(what), likelihood.count(), {}, text->num_unknown()};
  measured.metrics = tasks::describe_likelihood(likelihood, tokenizer.type(), text->characters_per_token()).metrics;
  if (tokenizer.type() != "bytes") {
    const double bytes_per_token = static_cast<double>(text->text_bytes()) / static_cast<double>(text->size());
    measured.metrics.emplace_back("bits_per_byte", likelihood.bits_per(bytes_per_token));
  }
  return measured;
}

/// Number in the head of each class of the data: by name where the head has a class of each name, by order where it has
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
  const std::string why = unknown != nullptr ? fmt::format("class {} of the data is not a class of the head '{}'",
                                                           base::in_quotes(*unknown), head.name)
                                             : fmt::format("the head '{}' has classes of the same name", head.name);
  base::require(static_cast<int64_t>(classes.size()) == head.num_classes,
                "eval: {}: {}, and its {} classes cannot be matched by order with the data's {}", what, why,
                head.num_classes, classes.size());
  if (!head.labels.empty()) base::log_warning("eval: {}: {}: classes are matched by order", what, why);
  return in_order;
}

/// The task that the run has taught, or the model's own head; --task chooses another.
bundle::ModelHead asked_head(const bundle::Bundle& stored, const std::optional<recipes::Recipe>& recipe,
                             const MeasureOptions& options) {
  const std::vector<bundle::ModelHead> heads = stored.heads();
  const bool taught = recipe && recipe->finetune && recipe->finetune->regime != models::FinetuneOptions::Regime::full;
  const std::string task = options.task.value_or(taught ? recipe->finetune->name : heads.front().name);
  return bundle::head_named(heads, task, "eval: --task");
}

/// Lets a head of the model answer, as long as this lives.
class Answering {
 public:
  Answering(std::shared_ptr<models::ImageModel> model, const std::string& head)
      : model_(std::move(model)), before_(model_->answers()) {
    model_->answer_for(head);
  }
  ~Answering() { model_->answer_for(before_); }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  std::shared_ptr<models::ImageModel> model_;
  std::string before_;
};

Measured measure_images(const bundle::Bundle& stored, const data::ImageOptions& images, std::optional<std::string> part,
                        const bundle::ModelHead& head, const MeasureOptions& options, const std::string& what) {
  require_no_text_options(options);
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
  tasks::Images task(std::move(sets), images, {.eval_batch_size = options.batch, .eval_samples = INT64_MAX});
  task.share_evaluations(options.group);
  if (tells(options)) warn_of_changed_data(task, base::write_options(images), wanted, stored);
  const Answering answering(stored.images(), head.name);
  const auto found = task.evaluate(*measured_model(stored, options), wanted);
  return {fmt::format("Images of `{}`, part {}, head {}.", what, *part, head.name), found->predictions, found->metrics,
          0};
}

/// The set that lies in a folder, in the way the model reads images; all of it where it has no parts of its own.
Measured measure_image_folder(const bundle::Bundle& stored, const MeasureOptions& options) {
  const std::optional<recipes::Recipe> recipe = recipe_beside(stored.folder);
  const bundle::ModelHead head = asked_head(stored, recipe, options);
  data::ImageOptions images = data::detect_images(*options.data);
  if (const auto task = recipe ? recipe->task() : nullptr; task && task->classifies_images()) {
    const data::ImageOptions own = task->images(stored.options());
    images.broken = own.broken;
    images.follow_links = own.follow_links;
  }
  images.valid_fraction = 0;
  const bundle::ImagePreprocessing facts = stored.preprocessing();
  images.image_size = facts.image_size;
  images.mean = facts.mean;
  images.std = facts.std;
  images.test_crop = facts.test_crop;
  return measure_images(stored, images, options.part, head, options, base::printable(*options.data, 400));
}

/// Whether the data are of that kind, as far as is known.
template <class Spec>
bool is_of(const std::optional<recipes::Recipe>& recipe) {
  const auto task = recipe ? recipe->task() : nullptr;
  return task == nullptr || dynamic_cast<const Spec*>(task.get()) != nullptr;
}

/// A part of a recipe's data, by its task.
std::optional<tasks::Evaluation> evaluated(const bundle::Bundle& stored, const recipes::Recipe& recipe,
                                           const MeasureOptions& options, data::Part part) {
  require_no_text_options(options);
  const auto task = recipe.task();
  // Generated tasks have no end; a file or a set of expressions is measured whole.
  tasks::TaskSettings settings = recipe.task_settings();
  settings.translated = options.translated;
  settings.eval_batch_size = options.batch;
  settings.vocabularies = [&] { return infer::vocabularies_of(stored); };
  settings.generation = [&] { return published_search(stored, recipe); };
  if (!task->endless()) settings.eval_samples = INT64_MAX;
  const auto loaded = task->load(stored.options(), settings);
  require_same_classes(loaded.shape.classes, stored);
  require_same_tokens(loaded.tokenizer.get(), stored);
  if (tells(options)) warn_of_changed_data(*loaded.task, recipe.data, part, stored);
  loaded.task->share_evaluations(options.group);
  return loaded.task->evaluate(*measured_model(stored, options), part);
}

/// Another file in place of the data of the model's own recipe, read as that says: masked tokens, spans.
Measured measure_as_trained(const bundle::Bundle& stored, std::optional<recipes::Recipe> recipe,
                            const MeasureOptions& options) {
  base::require(recipe && recipe->data.find("train") != nullptr,
                "eval: --data: {} is not in a run's folder, whose recipe says how texts are read for its head; "
                "expected a run, found head.type = \"{}\"",
                stored.folder, stored.options().head.type());
  recipe->data.set("train", *options.data);
  for (const char* key : {"valid", "test"})
    if (recipe->data.find(key) != nullptr) recipe->data.set(key, "");
  for (const char* key : {"valid_fraction", "test_fraction"})
    if (recipe->data.find(key) != nullptr) recipe->data.set(key, 0.0);
  const auto found = evaluated(stored, *recipe, options, data::Part::train);
  return {*options.data, found->predictions, found->metrics, 0, found->notes};
}

/// A part of the data that the model's own recipe names.
Measured measure_own(const bundle::Bundle& stored, const recipes::Recipe& recipe, const MeasureOptions& options) {
  base::require(!options.documents && !options.separator,
                "eval: --documents and --separator go with --data; the run's recipe has its own rule");
  const std::string name = options.part.value_or("valid");
  const data::Part part = data::part_of(name, "eval: --part");
  const auto task = recipe.task();
  if (const data::TextOptions* text = task->text()) {
    stored.words("eval");
    const data::TextSplit split = data::split_text(*text);
    const std::optional<text::TextSource> source = part == data::Part::train   ? split.train
                                                   : part == data::Part::valid ? split.valid
                                                                               : split.test;
    base::require(source.has_value(), "{}: its recipe has no {} part; {}", stored.folder, name, kOtherPart);
    return measure_text(
        stored,
        data::encode_text(*stored.tokenizer, *source, text->document_rule(), text->token_between(*stored.tokenizer)),
        options, name + " part of " + text->train, text->resets_segments(), recipe.train.eval_context.value_or(0));
  }
  // With the stored model's options: of a fine-tuning they may stand in the trained model alone.
  if (task->classifies_images()) {
    const data::ImageOptions images = task->images(stored.options());
    const std::string& place = part == data::Part::valid && !images.valid.empty() ? images.valid
                               : part == data::Part::test && !images.test.empty() ? images.test
                                                                                  : images.train;
    return measure_images(stored, images, name, asked_head(stored, recipe, options), options,
                          base::printable(place, 400));
  }
  const auto found = evaluated(stored, recipe, options, part);
  base::require(found.has_value(), "{}: its recipe has no {} part; {}", stored.folder, name, kOtherPart);
  return {task->describe() + " Part " + name + ".", found->predictions, found->metrics, 0, found->notes};
}

/// Pairs of a file, or of a folder of documents, in the columns and windows that the model's own recipe names.
Measured measure_pairs(const bundle::Bundle& stored, const MeasureOptions& options) {
  const std::optional<recipes::Recipe> recipe = own_recipe(stored);
  if (!is_of<tasks::PairSpec>(recipe)) return measure_as_trained(stored, recipe, options);
  require_no_text_options(options);
  tasks::PairSpecOptions pairs;
  if (recipe) pairs = base::read_typed_options<tasks::PairSpecOptions>(recipe->data);
  tasks::TranslationOptions translation = tasks::translation_options(pairs, stored.options());
  if (options.translated) translation.translated = *options.translated;
  translation.eval_batch_size = options.batch;
  translation.eval_samples = INT64_MAX;
  if (translation.translated > 0) translation.generation = published_search(stored, recipe);
  data::PairCorpus corpus = data::read_pair_set(pairs, *options.data, infer::vocabularies_of(stored));
  const int64_t left_out = corpus.train.left_out();
  if (left_out > 0 && tells(options))
    base::log_warning("{}: pairs left out: {}", *options.data, corpus.train.why_left_out(pairs));
  tasks::Translation task(std::move(corpus), translation);
  task.share_evaluations(options.group);
  const auto found = task.evaluate(*measured_model(stored, options), data::Part::train);
  Measured measured{*options.data, found->predictions, found->metrics, 0, found->notes};
  if (left_out > 0) measured.notes.emplace_back("left_out", left_out);
  return measured;
}

/// Labelled texts of a file, in the columns that the model's own recipe names.
Measured measure_labelled(const bundle::Bundle& stored, const MeasureOptions& options) {
  const std::optional<recipes::Recipe> recipe = own_recipe(stored);
  if (!is_of<tasks::LabelledTextSpec>(recipe)) return measure_as_trained(stored, recipe, options);
  require_no_text_options(options);
  const TextClassifier classifier(stored, recipe, "eval");
  data::LabelledTexts read = data::read_labelled_file(*options.data, classifier.columns());
  const bundle::ModelHead& head = classifier.head();
  const std::vector<std::string> classes = data::labels_of(read);
  std::vector<std::string> labels(static_cast<size_t>(head.num_classes));
  const std::vector<int32_t> numbers = matched_classes(classes, head, *options.data);
  for (size_t i = 0; i < classes.size(); ++i) labels[static_cast<size_t>(numbers[i])] = classes[i];
  tasks::ClassificationOptions reading = classifier.segments();
  reading.eval_batch_size = options.batch;
  reading.eval_samples = INT64_MAX;
  const data::LabelledSets texts = classifier.encode(
      {.train = std::move(read.texts), .valid = {}, .test = {}, .labels = std::move(labels)});
  const TextClassifier::ReadCount count{texts.train->num_read(), texts.train->num_unknown(), texts.train->num_cut()};
  if (tells(options)) classifier.report_left_out(count, *options.data);
  tasks::Classification task(texts, reading);
  task.share_evaluations(options.group);
  const auto found = task.evaluate(*measured_model(stored, options), data::Part::train);
  return {*options.data, found->predictions, found->metrics, count.unknown, found->notes};
}

}  // namespace

void MeasureOptions::validate() const {
  base::require(batch >= 1 && batch <= 1 << 20, "eval: --batch: expected 1 to {}, found {}", 1 << 20, batch);
  base::require(!segment_size || (*segment_size >= 1 && *segment_size <= 1 << 20),
                "eval: --segment-size: expected 1 to {}, found {}", 1 << 20, segment_size.value_or(0));
  base::require(!context || (*context >= 0 && *context < 1 << 20), "eval: --context: expected 0 to {}, found {}",
                (1 << 20) - 1, context.value_or(0));
  base::require(!reset || *reset == "documents" || *reset == "segments",
                "eval: --reset: expected documents or segments, found '{}'", base::printable(reset.value_or("")));
  base::require(!by_engine() || (batch == 1 && !segment_size),
                "eval: --precision, --kv-precision: the decoding engine reads one stream in the model's own segments; "
                "leave --batch and --segment-size out");
  base::require(!translated || *translated >= 0, "eval: --translated: expected at least 0, found {}",
                translated.value_or(0));
  base::require(!memory || !by_engine(),
                "eval: --memory: the decoding engine keeps its own; drop it or --precision and --kv-precision");
  base::require(memory != "noise" || !group || group->size() == 1,
                "eval: --memory noise: drawn by one process, segment after segment; drop it or --processes");
}

namespace {

/// A file of texts of which the model continues each.
Measured measure_text_file(const bundle::Bundle& stored, const MeasureOptions& options) {
  const std::optional<recipes::Recipe> recipe = own_recipe(stored);
  if (!stored.model->head().predicts_next_token()) return measure_as_trained(stored, recipe, options);
  stored.words("eval");
  base::require(!options.separator || options.documents == "line", "eval: --separator goes with --documents line");
  const auto rule = data::DocumentRule::parse(options.documents.value_or("none"), options.separator.value_or(""));
  const bool bytes = stored.tokenizer->type() == "bytes";
  const text::TextSource file = data::open_text(*options.data, {.any_bytes = bytes});
  const auto text = data::encode_text(*stored.tokenizer, bytes ? file : file.without_byte_order_mark(), rule);
  return measure_text(stored, text, options, *options.data, stored.conventions.resets_segments(),
                      recipe ? recipe->train.eval_context.value_or(0) : 0);
}

/// A part of a detector's own data, or of annotated images that are read as those.
Measured measure_detector(const bundle::Bundle& stored, const MeasureOptions& options) {
  base::require(!options.task, "eval: --task goes with a model that classifies images");
  base::require(!options.translated, "eval: --translated goes with a model of pairs");
  base::require(!options.data || !options.part, "eval: --part goes with a run's own data; drop it or --data");
  std::optional<recipes::Recipe> recipe = recipe_beside(stored.folder);
  base::require(options.data || recipe,
                "eval: {} is not in a run's folder, so its data are unknown; give a file of "
                "COCO instances, or a folder of annotated images, with --data",
                stored.folder);
  recipe = options.data ? detection_recipe(stored, *options.data) : with_own_classes(*recipe, stored);
  const std::string name = options.part.value_or("valid");
  const auto found = evaluated(stored, *recipe, options, data::part_of(name, "eval: --part"));
  base::require(found.has_value(), "{}: has no {} part; {}", recipe->data.at("train").as_string(), name, kOtherPart);
  const std::string part = options.data ? "" : " Part " + name + ".";
  return {recipe->task()->describe() + part, found->predictions, found->metrics, 0, found->notes};
}

/// The samples of --data for one kind of model, and how they are measured.
struct FileMeasure {
  const char* name;
  Measured (*measure)(const bundle::Bundle&, const MeasureOptions&);
  bool has_parts = false, has_tasks = false, translates = false;
};

FileMeasure file_measure(const bundle::Bundle& stored) {
  switch (core::kind_of(stored.model->input())) {
    case core::InputKind::images:
      return {"the folder of an image set", measure_image_folder, true, true};
    case core::InputKind::pairs:
      return {.name = "tab-separated pairs", .measure = measure_pairs, .translates = true};
    case core::InputKind::tokens:
      break;
  }
  return stored.model->num_classes() > 0 ? FileMeasure{"labelled texts", measure_labelled}
                                         : FileMeasure{"a text", measure_text_file};
}

Measured measure_any(const bundle::Bundle& stored, const MeasureOptions& options) {
  if (models::is_detector(stored.options())) return measure_detector(stored, options);
  const FileMeasure file = file_measure(stored);
  base::require(file.has_tasks || !options.task, "eval: --task goes with a model of images");
  base::require(file.translates || !options.translated, "eval: --translated goes with a model of pairs");
  base::require(stored.tokenizer != nullptr || !options.strict, "eval: --strict goes with texts");
  base::require(file.has_parts || !options.data || !options.part,
                "eval: --part goes with a run's own data; drop it or --data");
  if (options.data) return file.measure(stored, options);
  const std::optional<recipes::Recipe> recipe = recipe_beside(stored.folder);
  base::require(recipe.has_value(), "eval: {} is not in a run's folder, so its data are unknown; give {} with --data",
                stored.folder, file.name);
  return measure_own(stored, *recipe, options);
}

}  // namespace

Measured measure(const bundle::Bundle& stored, const MeasureOptions& options) {
  options.validate();
  if (stored.model->sees_ahead() && tells(options)) base::log_warning("eval: {}", models::kSeesAheadNotice);
  Measured measured = measure_any(stored, options);
  for (const auto& [name, value] : measured.metrics) {
    if (!std::isfinite(value))
      throw base::NotFinite(fmt::format("eval: {}: {} is not finite ({})", measured.what, name, std::abs(value)));
  }
  return measured;
}

}  // namespace mnemo::experiment
