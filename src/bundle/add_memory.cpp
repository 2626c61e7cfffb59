#include "bundle/add_memory.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <variant>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/node_path.h"
#include "base/text_format.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/foreign_images.h"
#include "bundle/generation_file.h"
#include "bundle/model_folder.h"
#include "bundle/peft.h"
#include "bundle/published_config.h"
#include "bundle/take_weights.h"
#include "core/head.h"
#include "models/presets.h"
#include "models/registry.h"
#include "models/replaced_attention.h"
#include "models/text_model.h"
#include "weights/lora.h"
#include "weights/safetensors.h"
#include "weights/sharded.h"

namespace mnemo::bundle {
namespace {

/// Throws InputError unless the attention has the maps whose weights it is to keep: of queries, keys and values.
void require_maps(models::ModelOptions model) {
  model.memory.clear();
  model.backbone.stack().num_layers = 1;
  const models::TextModel made(model, 0, at::kFloat, {}, at::kMeta);
  for (const char* map : {"q", "k", "v"})
    base::require(made.parameters().find(fmt::format("backbone.layers.0.attn.{}.weight", map)).defined(),
                  "convert: --attention: expected an attention with maps q, k and v of its own, which keep the model's "
                  "weights, found '{}', which has no {}",
                  model.backbone.stack().attention.type(), map);
}

/// The memories of the list, then those of the command line. beside: the rows that these add to a segment's.
base::Node longer_list(const std::vector<base::TypedOptions>& before, const ConvertOptions& options, int64_t& beside) {
  base::Node list = base::Node::array();
  for (const base::TypedOptions& memory : before) list.push_back(memory.table());
  for (const std::string& argument : options.memory) {
    const base::TypedOptions memory(models::ModelOptions::memory_types(), table_of_argument(argument, "--memory"));
    beside += models::Mechanisms::all().memories.find(memory.type()).rows_beside(memory);
    list.push_back(memory.table());
  }
  return list;
}

/// The [model] table of a translation model with memories in its encoder.
void change_encoder(base::Node& whole, const models::ModelOptions& before, const ConvertOptions& options) {
  base::require(!options.attention && !options.segment,
                "convert: --attention, --segment: expected a model with one stack of layers, found backbone.type = "
                "\"{}\", whose encoder takes --memory",
                before.backbone.type);
  constexpr const char* kKey = models::EncoderDecoderOptions::kEncoderKey;
  int64_t beside = 0;
  base::Node backbone = whole.at("backbone"), encoder = backbone.at(kKey);
  encoder.set("memory", longer_list(before.memories(), options, beside));
  backbone.set(kKey, encoder);
  whole.set("backbone", backbone);
}

/// The [model] table that a file of LoRA was trained with; nothing where it does not say. Throws InputError for one of
/// far more parameters than the model and the file have.
std::optional<base::Node> recorded_model(const ConvertOptions& options, const models::ModelOptions& before) {
  if (!options.lora || is_peft(*options.lora)) return std::nullopt;
  const weights::TensorFile file = weights::read_safetensors(*options.lora);
  const auto said = file.metadata.find(weights::kLoraModel);
  if (said == file.metadata.end()) return std::nullopt;
  const std::string where = *options.lora + ": the metadata '" + weights::kLoraModel + "'";
  const models::ModelOptions recorded = models::read_model_options(base::parse_json(said->second, where));
  int64_t held = 0;
  for (const auto& [name, tensor] : file.tensors) held += tensor.numel();
  constexpr int64_t kSpare = int64_t{1} << 20;
  base::require(models::count_parameters(recorded) <= 2 * models::count_parameters(before) + held + kSpare,
                "{}: expected a model of about the size of {}, found one of {} parameters", where, options.model,
                models::count_parameters(recorded));
  return base::write_options(recorded);
}

/// The [model] table with the additions of the options.
void change_model(base::Node& model, const ConvertOptions& options) {
  const models::ModelOptions before = models::read_model_options(model);
  const bool plain = options.memory.empty() && !options.attention && !options.segment;
  if (options.lora && plain) {
    model = recorded_model(options, before).value_or(base::write_options(before));
    return;
  }
  base::require(before.backbone.keys().embedding,
                "convert: --memory, --attention, --segment: expected a model of texts, found backbone.type = \"{}\"",
                before.backbone.type);
  base::Node whole = base::write_options(before);
  if (!before.backbone.keys().memory) {
    change_encoder(whole, before, options);
    model = whole;
    return;
  }
  if (options.attention) {
    base::Node backbone = whole.at("backbone");
    backbone.set("attention",
                 models::replaced_attention(before.backbone, table_of_argument(*options.attention, "--attention"),
                                            "convert: --attention"));
    whole.set("backbone", backbone);
  }
  int64_t beside = 0;
  if (!options.memory.empty()) whole.set("memory", longer_list(before.memory, options, beside));
  const auto& position = before.backbone.stack().position;
  const bool limited = position.type == backbones::PositionOptions::Type::learned;
  const int64_t places = limited ? position.places() : before.segment_size;
  base::require((options.segment && !limited) || places > beside,
                "convert: --memory: adds {} rows to every segment, and the model has {} positions: expected fewer{}",
                beside, places, limited ? "" : ", or --segment");
  const int64_t segment = options.segment.value_or(std::min(before.segment_size, places - beside));
  base::require(segment >= 1, "convert: --segment: expected at least 1, found {}", segment);
  base::require(
      !limited || segment + beside <= places,
      "convert: --segment: expected 1 to {}, as the model has {} positions and the memory adds {} rows, found {}",
      places - beside, places, beside, segment);
  whole.set("segment_size", segment);
  if (options.attention) require_maps(models::read_model_options(whole));
  model = whole;
}

/// A model of ours, built anew with those options; names of parameters that the old one lacks.
AnyModel rebuilt(const std::string& folder, const ConvertOptions& options) {
  base::Node model = model_table(folder);
  change_model(model, options);
  AnyModel made;
  made.model = models::build(models::read_model_options(model), static_cast<uint64_t>(options.seed));
  made.fresh = take_weights(folder, *made.model).fresh;
  return made;
}

/// Targets of a text model for random tokens [1,count+1]: the next tokens, the tokens themselves, or a class.
at::Tensor random_targets(const models::Model& model, const at::Tensor& tokens) {
  const int64_t count = tokens.size(1) - 1;
  if (model.num_classes() > 0) return at::zeros({1, 1}, at::kLong);
  return tokens.narrow(1, model.head().predicts_next_token() ? 1 : 0, count);
}

/// Tokens that the model chooses from when it writes, those of a source, and the most that it reads at once.
struct Vocabularies {
  int64_t words = 0, source_words = 0, segment = INT64_MAX;
};
Vocabularies vocabularies_of(const models::Model& model) {
  if (const auto* pairs = std::get_if<core::PairInput>(&model.input()))
    return {pairs->target_vocab_size, pairs->source_vocab_size};
  const core::TokenInput& text = core::token_input(model.input());
  return {text.vocab_size, 0, text.segment_size};
}

/// Mean of -log p after random tokens, two segments one after the other, or each by itself where segments stand alone.
/// Throws NotFinite where it is not finite.
double first_loss(const models::Model& model, bool segments_alone, const std::string& who) {
  base::require(
      model.head().input() == core::HeadInput::tokens || model.num_classes() > 0,
      "{}: the model has no head to train; expected one with a head, or a recipe with [model] from, memory and head",
      who);
  const at::NoGradGuard no_grad;
  constexpr int64_t kTokens = 32;
  const auto [words, source_words, segment_size] = vocabularies_of(model);
  const int64_t count = std::min(kTokens, segment_size);
  at::Generator generator = at::detail::createCPUGenerator(1);
  core::State state = model.initial_state(1);
  double sum = 0.0;
  for (int segment_number = 0; segment_number < 2; ++segment_number) {
    const at::Tensor tokens = at::randint(0, words, {1, count + 1}, generator, at::kLong);
    core::Segment segment;
    segment.tokens = tokens.narrow(1, 0, count);
    if (source_words > 0) segment.source = at::randint(0, source_words, {1, count}, generator, at::kLong);
    core::StepResult step = model.forward(segment, state);
    sum += model.nll(step.hidden, random_targets(model, tokens)).mean().item<double>();
    if (!segments_alone) state = std::move(step.state);
  }
  if (!std::isfinite(sum)) throw base::NotFinite(fmt::format("{}: the loss of random tokens is not finite", who));
  return sum / 2;
}

/// The first loss of a model, by segments alone where a second one is more than it can read.
double tried_loss(const models::Model& model, const std::string& folder) {
  const bool alone = TextConventions::read(folder).resets_segments();
  try {
    return first_loss(model, alone, "convert");
  } catch (const base::InputError& error) {
    if (alone || !model.options().memory.empty()) throw;
    const double loss = first_loss(model, true, "convert");
    base::log_warning("convert: the model cannot read a second segment: {}; train it with data.reset = \"segments\"",
                      error.what());
    return loss;
  }
}

/// The loss of guessing all words, or classes, alike.
double guessing_loss(const models::Model& model) {
  const int64_t choices = model.num_classes() > 0 ? model.num_classes() : vocabularies_of(model).words;
  return std::log(static_cast<double>(choices));
}

}  // namespace

base::Node table_of_argument(const std::string& argument, const std::string& option) {
  base::Node table = base::Node::table();
  size_t begin = 0;
  int depth = 0;
  for (size_t at = 0; at <= argument.size(); ++at) {
    const char c = at < argument.size() ? argument[at] : ',';
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c != ',' || (depth > 0 && at < argument.size())) continue;
    const std::string part = argument.substr(begin, at - begin);
    begin = at + 1;
    const bool first = table.size() == 0;
    base::require(!part.empty() && (first || part.find('=') != std::string::npos),
                  "convert: {}: expected TYPE,KEY=VALUE,.., found {}", option, base::in_quotes(argument));
    const std::string key = first ? "type" : base::assigned_key(part);
    base::require(first || base::find_at(table, key) == nullptr, "convert: {}: {} is given twice", option,
                  base::in_quotes(key));
    base::set_value(table, first && part.find('=') == std::string::npos ? "type=" + base::to_json(part, -1) : part);
    // Errors name the option.
    table.set_place_deep({std::make_shared<const std::string>(option), 0, 0});
  }
  return table;
}

std::map<std::string, std::string> text_files_of(const std::string& folder) {
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  std::map<std::string, std::string> files = generation_file_of(folder);
  files[kSourceConfig] = read_model_config(folder);
  if (std::string lines = foreign_class_lines(folder); !lines.empty()) files[kClassesFile] = std::move(lines);
  for (const std::string& name : base::list_folder(folder)) {
    const bool readable = name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") ||
                          name.ends_with(".spm") || name.ends_with(".bpe");
    if (readable && base::is_plain_name(name) && name != kConfigFile && name != weights::kIndexFile)
      files[name] = base::read_file(base::join_path(folder, name), kMaxBytes);
  }
  return files;
}

base::Node model_table(const std::string& path) {
  const std::string folder = find_model_folder(path);
  return base::write_options(load_any(folder).model->options());
}

AnyModel model_with_additions(const std::string& folder, const ConvertOptions& options) {
  const weights::ForeignFormat* format = read_published(folder).format;
  const bool trained = options.lora && !is_peft(*options.lora);  // perhaps with a head that the folder lacks
  if (format == nullptr || trained) {
    AnyModel made = rebuilt(folder, options);
    made.format = format;
    return made;
  }
  return load_any(folder, {.change = [&](base::Node& model) { change_model(model, options); },
                           .seed = static_cast<uint64_t>(options.seed)});
}

Converted add_memory(const ConvertOptions& options) {
  const std::string folder = model_folder(options.model, options.checkpoint);
  AnyModel made = model_with_additions(folder, options);
  if (options.lora && is_peft(*options.lora)) {
    const PublishedConfig published = find_published(folder);
    base::require(published.format != nullptr,
                  "convert: --lora: {} is an adapter of PEFT, for a model of another library; {} is none",
                  *options.lora, folder);
    apply_peft(*options.lora, *published.format, *made.model);
  } else if (options.lora) {
    const weights::TensorFile file = weights::read_safetensors(*options.lora);
    weights::apply_lora(file, made.model->parameters().named(), *options.lora);
    std::erase_if(made.fresh, [&](const std::string& name) { return file.find(name) != nullptr; });
  }
  Converted result{.parameters = made.model->parameters().count()};
  for (const std::string& name : made.fresh) result.fresh += made.model->parameters().find(name).numel();
  result.uniform_loss = guessing_loss(*made.model);
  result.first_loss = tried_loss(*made.model, folder);
  BundleContent content{.options = made.model->options(), .model = *made.model};
  content.files = made.format != nullptr ? text_files_of(folder) : files_beside(folder);
  content.files.erase(kSourceConfig);
  const std::string name = std::filesystem::path(folder).lexically_normal().filename().string();
  const std::string fresh = result.fresh == 0 ? std::string()
                                              : fmt::format(", {} of them fresh: train it on before use",
                                                            base::grouped(result.fresh));
  content.card = fmt::format(
      "---\nlibrary_name: mnemo\n---\n\n# {0} {1}\n\n{2} parameters{3}.\n\nMade with Mnemo {4} from `{0}` by mnemo "
      "convert.\n",
      name, options.lora ? "with merged LoRA" : "with memory", base::grouped(result.parameters), fresh,
      base::this_machine().mnemo);
  write_bundle(options.out, content);
  return result;
}

}  // namespace mnemo::bundle
