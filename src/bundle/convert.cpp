#include "bundle/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/nearest.h"
#include "base/node.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "bundle/add_memory.h"
#include "bundle/average.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/detection_input.h"
#include "bundle/foreign_images.h"
#include "bundle/foreign_texts.h"
#include "bundle/generation_file.h"
#include "bundle/model_folder.h"
#include "bundle/peft.h"
#include "bundle/published_config.h"
#include "bundle/require_exportable.h"
#include "models/convert.h"
#include "models/presets.h"
#include "models/text_model.h"
#include "weights/foreign.h"
#include "weights/model_tensors.h"

namespace mnemo::bundle {
namespace {

std::string last_name(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Converted to_t2r(const ConvertOptions& options) {
  base::require(!options.features || *options.features >= 1, "convert: --features: expected at least 1, found {}",
                options.features.value_or(0));
  const Bundle stored = read_bundle(options.model, options.checkpoint);
  const std::string& folder = stored.folder;
  const auto made = models::to_t2r(*stored.text("convert: --to t2r"), options.features,
                                   static_cast<uint64_t>(options.seed));
  BundleContent content{.options = made->options(), .model = *made, .tokenizer = stored.tokenizer};
  content.files = generation_file_of(folder);
  if (const std::vector<std::string> classes = class_names(folder); !classes.empty())
    content.files[kClassesFile] = fmt::format("{}\n", fmt::join(classes, "\n"));
  if (stored.tokenizer) content.files[TextConventions::kFile] = stored.conventions.text();
  content.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# T2R of {0}\n\n{1} parameters. The weights of `{0}`, a softmax model, with "
      "linear attention in place of its own: "
      "the feature maps are fresh, so train it on before use.\n\nMade with Mnemo {2}:\n\n    mnemo convert {0} --to "
      "t2r --out FOLDER\n",
      last_name(folder), base::grouped(made->parameters().count()), base::this_machine().mnemo);
  write_bundle(options.out, content);
  const int64_t parameters = made->parameters().count();
  return {parameters, parameters - stored.model->parameters().count()};
}

Converted to_encoder(const ConvertOptions& options) {
  const std::string folder = model_folder(options.model, options.checkpoint);
  const AnyModel loaded = load_any(folder);
  const auto made = models::to_encoder(*loaded.model);
  BundleContent content{.options = made->options(), .model = *made};
  content.files = loaded.format != nullptr ? text_files_of(folder) : files_beside(folder);
  for (const char* file : {kSourceConfig, kGenerationConfig, kClassesFile}) content.files.erase(file);
  content.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# Encoder of {0}\n\n{1} parameters. The encoder of `{0}`, for a head of its "
      "own.\n\nMade with Mnemo {2}:\n\n    mnemo convert {0} --to source_encoder --out FOLDER\n",
      last_name(folder), base::grouped(made->parameters().count()), base::this_machine().mnemo);
  write_bundle(options.out, content);
  return {made->parameters().count(), 0};
}

std::string card_of(const ConvertOptions& options, const core::Model& model, const std::string& folder) {
  return fmt::format(
      "---\nlibrary_name: {3}\n---\n\n# {0}\n\n{1} parameters. The weights of `{0}` under {4} names.\n\nMade with "
      "Mnemo {2}:\n\n"
      "    mnemo convert {0} --to {5} --out FOLDER\n",
      last_name(folder), base::grouped(model.parameters().count()), base::this_machine().mnemo,
      options.to == "mnemo" ? "mnemo" : "other", options.to == "mnemo" ? "Mnemo's" : "another library's", options.to);
}

/// config.json of a model in another library's format: its own one if it came from there and says the same, else made
/// anew. `files` get what belongs beside it.
std::string config_for(const weights::ForeignFormat& format, const AnyModel& loaded, const std::string& folder,
                       std::map<std::string, std::string>& files) {
  const models::ModelOptions& options = loaded.model->options();
  const std::string who = fmt::format("{}: convert: --to {}", folder, format.name);
  const auto read_back = [&](const base::Node& config) {
    return base::write_options(models::read_model_options(format.options(config)));
  };
  const std::optional<ImagePreprocessing> facts = format.detector ? std::nullopt : ImagePreprocessing::find(folder);
  const std::vector<std::string> classes = class_names(folder);
  const int64_t num_classes = options.num_classes().value_or(0);
  base::require(classes.empty() || static_cast<int64_t>(classes.size()) == num_classes,
                "{}: expected {} lines, as many as the head has classes, found {}",
                base::join_path(folder, kClassesFile), num_classes, classes.size());
  base::Node config = exported_config(format, options, read_back, who);
  files = add_image_facts(config, format, facts, classes, base::join_path(folder, ImagePreprocessing::kFile));
  if (format.detector) add_detection_input(config, *format.detector, folder, who);
  const std::string beside = base::join_path(folder, kSourceConfig);
  const std::string source = loaded.format != nullptr    ? loaded.config
                             : base::path_exists(beside) ? base::read_file(beside, size_t{16} << 20)
                                                         : std::string();
  if (!source.empty()) {
    const base::Node before = weights::parse_model_config(source, kSourceConfig, weights_bytes(folder));
    const bool same = format.claims(before) && read_back(before) == base::write_options(options) &&
                      says_image_facts(before, format, facts, classes) &&
                      (!format.detector || says_detection_input(before, *format.detector, folder));
    if (same) return source;
  }
  return base::to_json(config) + "\n";
}

Converted to_average(const ConvertOptions& options) {
  const int64_t count = options.last.value_or(5);
  base::require(!options.checkpoint,
                "convert: --to average takes several checkpoints: use --last instead of --checkpoint");
  ModelFolder made = average_of(options.model, count);
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : made.weights.tensors) bytes += tensor.nbytes();
  const int64_t parameters = models::count_parameters(
      models::read_model_options(weights::parse_model_config(made.config, kConfigFile, bytes)));
  made.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# {0}\n\n{1} parameters. The mean of the last {2} checkpoints of `{0}`.\n\n"
      "Made with Mnemo {3}:\n\n    mnemo convert {0} --to average --last {2} --out FOLDER\n",
      last_name(options.model), base::grouped(parameters), count, base::this_machine().mnemo);
  write_model_folder(options.out, made);
  return {parameters, 0};
}

/// Between Mnemo's names and those of other libraries; weights stay as they are.
Converted to_format(const ConvertOptions& options) {
  const bool ours = options.to == "mnemo";
  const weights::ForeignFormat* format = ours ? nullptr : &weights::foreign_format(options.to);
  const std::string folder = model_folder(options.model, options.checkpoint);
  const AnyModel loaded = load_any(folder);
  const models::ModelOptions& found = loaded.model->options();
  ModelFolder content;
  content.card = card_of(options, *loaded.model, folder);
  if (ours) {
    content.config = base::to_json(base::write_options(found)) + "\n";
    content.weights.tensors = weights::model_tensors(*loaded.model);
    const bool texts = loaded.format != nullptr && loaded.format->variants.has_value();
    content.vocabulary = texts                      ? text_files_of(folder)
                         : loaded.format != nullptr ? image_files_of(folder)
                                                    : files_beside(folder);
  } else {
    base::require(found.backbone.type == format->backbone,
                  "convert: --to {}: expected a model of backbone.type = \"{}\", found \"{}\"", options.to,
                  format->backbone, found.backbone.type);
    if (format->variants) {
      content.config = text_config_for(*format, loaded, folder);
      content.vocabulary = text_files_of(folder);
      for (const char* file : {kSourceConfig, kClassesFile}) content.vocabulary.erase(file);  // config.json says it
    } else {
      content.config = config_for(*format, loaded, folder, content.vocabulary);
    }
    content.weights.tensors = weights::to_theirs(*format, weights::model_tensors(*loaded.model),
                                                 found.backbone.num_heads());
    content.weights.metadata = format->metadata;
  }
  write_model_folder(options.out, content);
  return {loaded.model->parameters().count(), 0};
}

/// The options with the model's folder found in a run's; an average is of the run. Writing the new model replaces what
/// is in its folder, so that must be another: links and other ways to write a path lead to the same folder.
ConvertOptions with_folder(const ConvertOptions& options) {
  ConvertOptions found = options;
  if (options.to != "average") {
    found.model = model_folder(options.model, options.checkpoint);
    found.checkpoint.reset();
  }
  std::vector<std::string> sources = {options.model, found.model};
  if (options.to == "average") sources.push_back(base::join_path(options.model, "model"));
  for (const std::string& source : sources) {
    std::error_code missing;
    base::require(
        !std::filesystem::equivalent(source, options.out, missing),
        "convert: --out: expected a folder other than the model's, which would be replaced, found {}: it is {}",
        base::in_quotes(options.out), base::in_quotes(source));
  }
  return found;
}

/// A file of LoRA as an adapter of the published model that it was trained on.
Converted to_peft(const ConvertOptions& options) {
  base::require(options.lora.has_value() && !is_peft(*options.lora),
                "convert: --to peft: expected --lora FILE, the lora.safetensors of a training");
  base::require(options.memory.empty() && !options.attention && !options.segment,
                "convert: --to peft writes an adapter alone; drop --memory, --attention and --segment");
  base::require(!options.out.empty(), "convert: --out: expected a folder, found none");
  const std::string folder = model_folder(options.model, options.checkpoint);
  const PublishedConfig published = find_published(folder);
  base::require(published.format != nullptr, "convert: --to peft: expected a model of another library, found {}",
                folder);
  const AnyModel loaded = model_with_additions(folder, options);
  write_peft(*options.lora, *published.format, *loaded.model, last_name(folder), options.out);
  return {loaded.model->parameters().count(), 0};
}

void require_no_numbers(const ConvertOptions& options) {
  base::require(!options.features && !options.last, "convert: --features and --last go with --to t2r and --to average");
}

}  // namespace

std::vector<std::string> conversion_names() {
  std::vector<std::string> known = {"t2r", "average", "source_encoder", "mnemo", "peft"};
  for (const weights::ForeignFormat& format : weights::foreign_formats()) known.emplace_back(format.name);
  return known;
}

Converted convert(const ConvertOptions& options) {
  base::require(options.seed >= 0, "convert: --seed: expected at least 0, found {}", options.seed);
  const std::vector<std::string> known = conversion_names();
  if (options.to == "peft") {
    require_no_numbers(options);
    return to_peft(options);
  }
  if (options.adds()) {
    base::require(options.to.empty(),
                  "convert: --memory, --attention, --lora and --segment make a model of Mnemo: drop --to {}",
                  options.to);
    require_no_numbers(options);
    base::require(!options.out.empty(), "convert: --out: expected a folder, found none");
    return add_memory(with_folder(options));
  }
  base::require(!options.to.empty(), "convert: --to: expected one of {}, found none", fmt::join(known, ", "));
  const std::vector<std::string> attentions = models::BackboneOptions::attention_types().types();
  base::require(std::find(attentions.begin(), attentions.end(), options.to) == attentions.end(),
                "convert: --to: '{0}' is an attention; write --attention {0}, with its options: "
                "--attention {0},KEY=VALUE",
                options.to);
  base::require(std::find(known.begin(), known.end(), options.to) != known.end(), "convert: --to: unknown kind '{}'{}",
                options.to, base::suggestion(options.to, known));
  base::require(!options.out.empty(), "convert: --out: expected a folder, found none");
  const bool t2r = options.to == "t2r", average = options.to == "average";
  base::require(t2r || (!options.features && options.seed == 0), "convert: --features and --seed go with --to t2r");
  base::require(average || !options.last, "convert: --last goes with --to average");
  const ConvertOptions found = with_folder(options);
  if (average) return to_average(found);
  if (options.to == "source_encoder") return to_encoder(found);
  return t2r ? to_t2r(found) : to_format(found);
}

std::string conversions_text() {
  std::string text =
      "Kinds (--to):\n"
      "  t2r             linear attention with learned features, from softmax attention\n"
      "  average         the mean of a run's last checkpoints\n"
      "  source_encoder  a T5's encoder alone, to classify texts\n"
      "  mnemo           from another library's folder (found by its config.json)\n"
      "  peft            with --lora FILE: an adapter for PEFT of the model that the training started from";
  for (const weights::ForeignFormat& format : weights::foreign_formats()) {
    const std::vector<std::string> lines = base::wrap_words(format.about, 60);
    text += fmt::format("\n  {:14}  {}", format.name, fmt::join(lines, "\n" + std::string(18, ' ')));
  }
  return text;
}

}  // namespace mnemo::bundle
