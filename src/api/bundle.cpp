#include "bundle/bundle.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/class_names.h"
#include "bundle/model_heads.h"
#include "data/images/image_reader.h"
#include "experiment/device.h"
#include "experiment/inspection.h"
#include "experiment/measure.h"
#include "infer/engine_cache.h"
#include "infer/image_classifier.h"
#include "infer/object_detector.h"
#include "infer/open_text.h"
#include "mnemo.h"
#include "models/detection_options.h"
#include "models/model.h"
#include "recipes/recipe.h"
#include "text/open_tokenizer.h"

namespace mnemo {
namespace {

/// Empty strings and zeros mean "not given" in mnemo.h.
std::optional<std::string> given(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<std::string>(text);
}

experiment::MeasureOptions measure_options(const EvaluateOptions& options) {
  experiment::MeasureOptions out;
  out.part = given(options.part);
  out.documents = given(options.documents);
  out.separator = given(options.separator);
  out.reset = given(options.reset);
  out.precision = given(options.precision);
  out.kv_precision = given(options.kv_precision);
  out.task = given(options.task);
  if (options.segment_size != 0) out.segment_size = options.segment_size;
  out.batch = options.batch;
  out.should_stop = options.watch.should_stop;
  return out;
}

Evaluation evaluation_of(experiment::Measured measured) {
  return {std::move(measured.what), measured.predictions, std::move(measured.metrics)};
}

infer::ClassifyOptions classify_options(const ClassifyOptions& options) {
  return {.tasks = options.tasks,
          .top = options.top,
          .batch = options.batch,
          .skip_broken = options.skip_broken,
          .should_stop = options.watch.should_stop};
}

ImageAnswer answer_of(const infer::ImageAnswer& found) {
  ImageAnswer answer{found.image, found.error, {}};
  for (const infer::HeadAnswer& head : found.heads) {
    TaskAnswer& task = answer.tasks.emplace_back(TaskAnswer{head.head, {}});
    for (const infer::ClassShare& share : head.best) task.labels.push_back({share.label, share.probability});
  }
  return answer;
}

experiment::InspectOptions inspect_options(const InspectOptions& options) {
  experiment::InspectOptions out;
  out.set = options.set;
  out.variant = given(options.variant);
  out.input.text = given(options.text);
  out.image = given(options.image);
  out.choice.layers = given(options.layers);
  out.choice.heads = given(options.heads);
  out.cost = options.cost;
  out.checkpoint = given(options.checkpoint);
  return out;
}

Inspection inspection_of(experiment::Inspection found) {
  return Inspection(std::make_shared<const experiment::Inspection>(std::move(found)));
}

/// Puts the model's own conventions and tokenizer among the files of its folder, if it lies in one: a copy may have
/// others than that has.
void put_text_files(const bundle::Bundle& parts, std::map<std::string, std::string>& files) {
  const std::string conventions = parts.conventions.text(), file = bundle::TextConventions::kFile;
  const bool usual = conventions == bundle::TextConventions().text();
  if (files.contains(file) || !usual || (parts.folder.empty() && parts.tokenizer)) files[file] = conventions;
  if (!parts.tokenizer) return;
  text::Files own = parts.tokenizer->save();
  const bool known = std::ranges::all_of(own, [&](const auto& one) {
    const auto found = files.find(one.first);
    return found != files.end() && found->second == one.second;
  });
  if (known) return;
  // Drop the files of the folder's tokenizer: they could be read instead of the new ones.
  if (!parts.folder.empty() && text::has_tokenizer(parts.folder)) {
    for (const auto& [name, content] : text::open_tokenizer(parts.folder)->save()) files.erase(name);
  }
  own.merge(files);
  files = std::move(own);
}

}  // namespace

Bundle load(const std::string& folder, const LoadOptions& options) {
  const Watching watching(options.watch);
  const at::Device device = experiment::device_named(options.device);
  auto parts = std::make_shared<bundle::Bundle>(bundle::read_bundle(folder, given(options.checkpoint)));
  experiment::move_to(*parts->model, device);
  return Bundle(std::move(parts));
}

void save_model(const std::string& folder, const Bundle& model) {
  const bundle::Bundle& parts = model.parts();
  base::require(parts.format == nullptr,
                "save_model: {}: expected a model in Mnemo's format, found {}; convert it first", parts.folder,
                model.format());
  bundle::BundleContent content{.options = parts.options(), .model = *parts.model, .tokenizer = parts.tokenizer};
  if (!parts.folder.empty()) {
    content.files = bundle::files_beside(parts.folder);
    const std::string card = base::join_path(parts.folder, "README.md");
    if (base::path_exists(card)) content.card = base::read_file(card, uint64_t{16} << 20);
  }
  put_text_files(parts, content.files);
  bundle::write_bundle(folder, content);
}

double Evaluation::at(std::string_view name) const {
  for (const auto& [known, value] : metrics) {
    if (known == name) return value;
  }
  base::input_error("{}: no metric '{}'", data, name);
}

Bundle::Bundle(std::shared_ptr<const bundle::Bundle> parts)
    : parts_(std::move(parts)), engines_(std::make_shared<infer::EngineCache>()) {}

infer::TextSession Bundle::text(const GenerateOptions& options) const {
  return infer::open_text(*parts_, options, engines_.get());
}

infer::TextSession Bundle::resume_text(const std::string& session_file, const GenerateOptions& options) const {
  return infer::resume_text(*parts_, session_file, options, engines_.get());
}

int64_t Bundle::generate(std::string_view prompt, const std::function<bool(std::string_view)>& on_text,
                         const GenerateOptions& options) const {
  options.check_length();
  infer::TextSession session = text(options);
  session.feed(prompt);
  bool goes_on = true;
  const int64_t made = session.generate(options, [&](std::string_view piece) {
    goes_on = on_text(piece);
    return goes_on;
  });
  if (const std::string rest = session.finish(); goes_on && !rest.empty()) on_text(rest);
  return made;
}

std::string Bundle::generate(std::string_view prompt, const GenerateOptions& options) const {
  std::string written;
  generate(
      prompt,
      [&](std::string_view piece) {
        written += piece;
        return true;
      },
      options);
  return written;
}

std::vector<TokenScore> Bundle::score(std::string_view text, std::string_view prompt, const Watch& watch) const {
  const Watching watching(watch);
  infer::TextSession session = infer::open_text(*parts_, {.should_stop = watch.should_stop}, engines_.get());
  session.feed(prompt);
  std::vector<TokenScore> scores;
  for (infer::ScoredToken& token : session.score(text))
    scores.push_back({token.id, std::move(token.text), token.log_probability});
  return scores;
}

Evaluation Bundle::evaluate(std::string_view data, const EvaluateOptions& options) const {
  const Watching watching(options.watch);
  experiment::MeasureOptions measured = measure_options(options);
  measured.data = std::string(data);
  return evaluation_of(experiment::measure(*parts_, measured));
}

Evaluation Bundle::evaluate(const EvaluateOptions& options) const {
  const Watching watching(options.watch);
  return evaluation_of(experiment::measure(*parts_, measure_options(options)));
}

std::vector<TaskAnswer> Bundle::classify(const std::string& image, const ClassifyOptions& options) const {
  base::require(!base::is_folder(image), "{}: expected an image, found a folder", image);
  std::vector<ImageAnswer> answers = classify(std::vector<std::string>{image}, options);
  return std::move(answers.front().tasks);
}

std::vector<ImageAnswer> Bundle::classify(const std::vector<std::string>& images,
                                          const ClassifyOptions& options) const {
  const Watching watching(options.watch);
  std::vector<ImageAnswer> answers;
  const infer::ImageClassifier classifier(*parts_, classify_options(options));
  classifier(infer::image_paths(images),
             [&](const infer::ImageAnswer& answer) { answers.push_back(answer_of(answer)); });
  return answers;
}

std::vector<ImageAnswer> Bundle::classify(std::initializer_list<std::string> images,
                                          const ClassifyOptions& options) const {
  return classify(std::vector<std::string>(images), options);
}

ImageObjects Bundle::detect(const std::string& image, const DetectOptions& options) const {
  const infer::ObjectDetector detector(*parts_, {options.threshold, options.top, options.masks});
  infer::ImageObjects found = detector(data::read_image(image));
  ImageObjects out{found.image.height, found.image.width, {}, detector.svg(found)};
  for (const tasks::FoundObject& object : found.objects)
    out.objects.push_back(
        {detector.label(object.category), object.score, object.box, data::bitmap_of(object.mask).bytes});
  return out;
}

Inspection Bundle::inspect(const InspectOptions& options) const {
  base::require(options.checkpoint.empty(),
                "inspect: a checkpoint goes with a run's folder; {} is a model that is open", folder());
  return inspection_of(experiment::inspect_bundle(*parts_, inspect_options(options)));
}

const std::string& Bundle::folder() const { return parts_->folder; }

bool Bundle::is_images() const { return parts_->is_images(); }

bool Bundle::resets_segments() const { return parts_->conventions.resets_segments(); }

std::string Bundle::format() const { return parts_->format == nullptr ? "mnemo" : std::string(parts_->format->name); }

std::vector<std::string> Bundle::labels(const std::string& task) const {
  if (is_images() && !models::is_detector(parts_->options()))
    return bundle::head_named(parts_->heads(), task, "labels").labels;
  const std::vector<bundle::ModelHead> heads{bundle::own_head(*parts_->model, parts_->folder)};
  base::require(heads[0].num_classes > 0, "labels: {}: expected a model with classes, found one without",
                parts_->folder);
  const std::vector<std::string>& names = bundle::head_named(heads, task, "labels").labels;
  return bundle::are_numbered(names) ? std::vector<std::string>() : names;
}

Inspection inspect_model(const std::string& source, const InspectOptions& options) {
  return inspection_of(experiment::inspect_source(source, inspect_options(options)));
}

int64_t Inspection::parameters() const { return parts_->summary.parameters; }

int64_t Inspection::state_bytes() const { return parts_->summary.full_state_bytes(); }

std::string Inspection::text() const { return parts_->text(); }

std::string Inspection::json() const { return base::to_json(parts_->to_node(), 2) + "\n"; }

std::string Inspection::html(const std::string& title) const { return parts_->html(title); }

std::string Inspection::svg() const { return parts_->svg(); }

}  // namespace mnemo
