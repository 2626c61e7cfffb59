#include "experiment/experiment.h"

#include <fmt/ranges.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/machine.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"
#include "bundle/preprocessing.h"
#include "bundle/text_conventions.h"
#include "experiment/finetune_model.h"
#include "experiment/sample_task.h"
#include "memory/learnable_tokens.h"
#include "models/build.h"
#include "models/make_attention.h"
#include "models/presets.h"
#include "tasks/language_model.h"
#include "weights/model_tensors.h"

namespace mnemo::experiment {
namespace {

void take_vocabulary(models::ModelOptions& model, int64_t vocabulary) {
  int64_t& size = model.embedding.vocab_size;
  if (size == 0) size = vocabulary;
  base::require(size >= vocabulary,
                "recipe: 'model.embedding.vocab_size': expected at least the data's {} different tokens, found {}",
                vocabulary, size);
}

/// Refuses a model that this machine cannot hold before any of it is allocated. `copies` of its parameters: with
/// gradients two.
std::shared_ptr<core::Model> build_with(const Recipe& recipe, int64_t copies) {
  const int64_t parameters = models::count_parameters(recipe.model), memory = base::usable_memory();
  const std::string sizes = recipe.model.backbone.is_vision()
                                ? std::string()
                                : fmt::format("; embedding.vocab_size is {}, backbone.dim {}",
                                              recipe.model.embedding.vocab_size, recipe.model.backbone.dim);
  base::require(parameters <= memory / copies / 4,
                "recipe: 'model': {} parameters{} need {} MB, and this machine has {} MB{}", base::grouped(parameters),
                copies > 1 ? " and their gradients" : "", base::grouped(parameters / 1'000'000 * copies * 4),
                base::grouped(memory / 1'000'000), sizes);
  return models::build_any(recipe.model, static_cast<uint64_t>(recipe.train.seed));
}

/// Where an attention has a place for each token, a sequence must not have more; `length` tokens of a sample.
void require_places(const Recipe& recipe, int64_t length) {
  const auto limit = recipe.model.backbone.is_vision() || !recipe.model.backbone.causal()
                         ? std::nullopt
                         : models::row_limit(recipe.model.backbone.attention);
  if (!limit) return;
  if (!recipe.is_text()) return limit->require(length, "the longest sample has so many tokens");
  const data::TextOptions text = text_options(recipe);
  if (text.reset == "segments")
    return limit->require(recipe.model.segment_size, "segment_size; each segment stands alone (data.reset)");
  base::Where(&recipe.data, "data")
      .require(text.document_separator != "none", "reset",
               "expected \"segments\": the text has no documents, so it is one sequence "
               "without an end, and '{}.{}' has places for {} tokens",
               limit->table.path(), limit->key, limit->rows);
}

/// Tokens go to models of tokens, images to models of images.
void require_fitting_model(const Recipe& recipe) {
  base::require(!recipe.is_images() || recipe.model.backbone.is_vision(),
                "recipe: [data] of type \"images\" needs a model of images, found model.backbone.type = \"{}\"; mnemo "
                "help recipe names them",
                recipe.model.backbone.type);
  base::require(recipe.is_images() || !recipe.model.backbone.is_vision(),
                "recipe: [data] of type \"{}\" is made of tokens, but model.backbone.type = \"{}\" takes images; use a "
                "decoder or an encoder",
                recipe.data_type(), recipe.model.backbone.type);
}

/// Fills in what the data know of the model, and refuses what does not fit them.
void fit_to(const DataShape& data, std::string_view type, models::ModelOptions& model) {
  if (data.segment_size) {
    const bool left_out = model.segment_size == models::ModelOptions{}.segment_size;
    base::require(
        left_out || model.segment_size == *data.segment_size,
        "recipe: 'model.segment_size': data.num_segments makes segments of {}; expected that or nothing, found {}",
        *data.segment_size, model.segment_size);
    model.segment_size = *data.segment_size;
  }
  const std::string head = base::type_of(model.head);
  if (data.num_classes == 0) return;
  base::require(head == "classification",
                "recipe: 'model.head': [data] of type \"{}\" is classified; expected type = "
                "\"classification\", found \"{}\"",
                type, head);
  const int64_t classes = model.head.at("num_classes").as_int();
  base::require(classes == 0 || classes == data.num_classes,
                "recipe: 'model.head.num_classes': expected 0 or the data's {}, found {}", data.num_classes, classes);
  model.head.set("num_classes", data.num_classes);
}

/// An answer of several symbols is made by reading each one back, be it longer than a segment or not; an encoder
/// cannot.
void require_decoder(const core::Model& model, int64_t answer_length, const std::string& data_type) {
  const std::string who = fmt::format("recipe: [data] of type \"{}\"", data_type);
  base::require(models::options_of(model).backbone.causal(),
                "{}: an answer of {} symbols in segments of {} (model.segment_size) is given symbol by symbol, which "
                "an encoder cannot do: it sees a "
                "whole segment at once; expected model.backbone.type = \"decoder\"",
                who, answer_length, model.segment_size());
  models::require_next_token_model(model, who);
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

std::string data_text(const Recipe& recipe) {
  if (!recipe.is_text()) return describe_samples(recipe);
  return fmt::format("Text `{}`, in {}.", file_name(recipe.data.at("train").as_string()),
                     recipe.data.at("unit").as_string());
}

/// The recipe without the paths of this machine.
base::Node shown_recipe(const Recipe& recipe) {
  base::Node node = base::write_options(recipe);
  base::Node* data = node.find("data");
  for (const char* key : {"train", "valid", "test"}) {
    base::Node* path = data->find(key);
    if (path != nullptr && path->is_string() && !path->as_string().empty())
      *path = base::Node(file_name(path->as_string()));
  }
  return node;
}

std::string card_text(const Experiment& workbench, const ModelCard& card) {
  std::string metrics;
  for (const auto& [name, value] : card.metrics) metrics += fmt::format("| {} | {:.4f} |\n", name, value);
  const bool writes = workbench.tokenizer != nullptr;
  std::string text = fmt::format("---\nlibrary_name: mnemo\n{}---\n\n# {}\n\n",
                                 writes ? "pipeline_tag: text-generation\n" : "", card.title);
  if (!workbench.recipe.about.empty()) text += workbench.recipe.about + "\n\n";
  text += fmt::format(
      "{} parameters. {}\n\nTrained for {} steps on {} {} in {} with Mnemo {} (LibTorch {}):\n\n    {}\n\n",
      base::grouped(workbench.model->parameters().count()), data_text(workbench.recipe), base::grouped(card.steps),
      base::grouped(card.tokens), workbench.unit, base::duration_text(card.seconds), base::this_machine().mnemo,
      base::this_machine().libtorch, card.command);
  if (!metrics.empty()) text += "## On held-out data\n\n| metric | value |\n| --- | ---: |\n" + metrics + "\n";
  if (writes)
    text +=
        "## Use\n\n    mnemo generate FOLDER --prompt \"…\" --tokens 200\n    mnemo eval FOLDER --data text.txt\n\n";
  return text + "## Recipe\n\n```toml\n" + base::to_toml(shown_recipe(workbench.recipe)) + "```\n";
}

}  // namespace

data::TextOptions text_options(const Recipe& recipe) {
  return base::read_typed_options<data::TextOptions>(recipe.data);
}

models::ModelOptions complete_model(const Recipe& recipe) {
  // A model of images whose classes are named needs no data.
  const base::Node* classes = recipe.model.head.find("num_classes");
  const bool complete = !recipe.is_images() || (classes != nullptr && classes->as_int() > 0);
  if (recipe.model.backbone.is_vision() && complete && !recipe.finetune) return recipe.model;
  Recipe filled = recipe;
  // A recipe with [finetune] alone: the trained model says what it is.
  if (recipe.finetune && !recipe.model.backbone.is_vision())
    filled.model = models::options_of(*read_model(model_folder(recipe.finetune->model)).model);
  require_fitting_model(filled);
  if (!recipe.is_text()) {
    const DataShape data = data_shape(filled);
    if (recipe.finetune) {
      filled.model = models::plan_finetuning(filled.model, *recipe.finetune, data.classes).options;
    } else {
      fit_to(data, recipe.data_type(), filled.model);
    }
    take_vocabulary(filled.model, data.vocabulary);
    return filled.model;
  }
  int64_t vocabulary = recipe.model.embedding.vocab_size;
  if (vocabulary == 0) {
    const data::TextOptions text = text_options(recipe);
    vocabulary = data::make_tokenizer(text.unit, data::split_text(text).train, {text.min_count, text.max_vocabulary})
                     ->size();
  }
  take_vocabulary(filled.model, vocabulary);
  return filled.model;
}

std::shared_ptr<core::Model> build_model(const Recipe& recipe) {
  Recipe filled = recipe;
  filled.model = complete_model(recipe);
  return build_with(filled, 1);
}

void require_buildable(const Recipe& recipe) {
  if (recipe.model.backbone.is_vision() || recipe.finetune) return;
  if (recipe.is_text() || recipe.data_type() == "algorithmic")
    require_places(recipe, recipe.is_text() ? 0 : data_shape(recipe).length);
  models::ModelOptions declared = recipe.model;
  if (declared.embedding.vocab_size == 0) declared.embedding.vocab_size = 1 << 24;  // the data's, not known yet
  if (base::type_of(declared.head) == "classification" && declared.head.at("num_classes").as_int() == 0)
    declared.head.set("num_classes", 2);
  models::count_parameters(declared);
}

namespace {

/// Runs one black image, so that a size that the model cannot take is found before anything is written.
void require_image_size(const Recipe& recipe, const core::Model& model) {
  const at::NoGradGuard no_grad;
  const data::ImageOptions images = image_options(recipe);
  core::Segment segment;
  segment.pixels = at::zeros({1, 3, images.height(), images.width()});
  segment.mode = core::Mode::evaluate;
  try {
    model.forward(segment, model.initial_state(1));
  } catch (const base::InputError& error) {
    base::input_error("recipe: 'data.image_size': {}", error.what());
  }
}

/// [model] beside [finetune] says what the trained model is, or nothing: no model is made of it. Tasks that are
/// attached it may leave out, and classes of the head.
void require_same_model(models::ModelOptions given, models::ModelOptions stored, const std::string& folder) {
  const bool left_out = !given.backbone.is_vision();
  if (left_out) {
    stored = base::read_options<models::ModelOptions>(base::Node::table());
  } else if (given.memory.empty()) {
    std::erase_if(stored.memory,
                  [](const base::Node& memory) { return base::type_of(memory) == memory::LearnableTokens::kType; });
  }
  const base::Node* classes = given.head.find("num_classes");
  if (!left_out && classes != nullptr && classes->as_int() == 0)
    given.head.set("num_classes", stored.head.at("num_classes"));
  const base::Node expected = base::write_options(stored), found = base::write_options(given);
  for (const auto& [key, value] : found.members()) {
    const base::Node* same = expected.find(key);
    base::require(same != nullptr && *same == value,
                  "recipe: 'model.{}' is not as in the model of {}, which [finetune] starts from; leave [model] out",
                  key, folder);
  }
}

/// The trained model that a recipe starts from, told what its data are.
void start_finetuning(Experiment& bench) {
  Recipe& recipe = bench.recipe;
  const std::string folder = model_folder(recipe.finetune->model);
  const StoredModel stored = read_model(folder);
  const models::ModelOptions& options = models::options_of(*stored.model);
  base::require(recipe.is_images(),
                "recipe: [finetune] is for images; expected [data] of type \"images\", found \"{}\"",
                recipe.data_type());
  require_same_model(recipe.model, options, folder);
  recipe.model = options;
  SampleTask samples = make_sample_task(recipe, {recipe.train.eval_batch_size, recipe.train.eval_samples});
  FinetuneModel made = finetune_model(*stored.model, folder, *recipe.finetune, samples.shape.classes,
                                      static_cast<uint64_t>(recipe.train.seed));
  if (const std::optional<bundle::ImagePreprocessing> facts = bundle::ImagePreprocessing::find(folder);
      facts && made.plan.has_task_memory) {
    const data::ImageOptions images = image_options(recipe);
    base::require(images.image_size == facts->image_size && images.mean == facts->mean && images.std == facts->std,
                  "recipe: 'data': expected image_size, mean and std as the model has them ({}: {}, or what its "
                  "config.json says), since all tasks read the same pixels",
                  folder, bundle::ImagePreprocessing::kFile);
  }
  recipe.model = made.plan.options;
  bench.model = made.model;
  require_image_size(recipe, *bench.model);
  bench.tokens_per_step = recipe.train.batch_size;
  bench.unit = "images";
  bench.classes = made.plan.has_task_memory ? bundle::class_names(folder) : samples.shape.classes;
  bench.finetune = std::move(made.plan);
  bench.task = std::move(samples.task);
}

}  // namespace

Experiment make_experiment(const Recipe& recipe) {
  Experiment bench{.recipe = recipe, .tokenizer = {}, .model = {}, .task = {}};
  const train::TrainOptions& train = recipe.train;
  if (recipe.finetune) {
    start_finetuning(bench);
    return bench;
  }
  require_fitting_model(recipe);
  require_buildable(recipe);
  if (recipe.is_text()) {
    data::Corpus corpus = data::load_corpus(text_options(recipe));
    bench.tokenizer = corpus.tokenizer;
    take_vocabulary(bench.recipe.model, corpus.tokenizer->size());
    bench.model = build_with(bench.recipe, 2);
    models::require_next_token_model(*bench.model, "recipe: [data] of type \"text\"");
    bench.task = std::make_unique<tasks::LanguageModel>(
        std::move(corpus),
        tasks::LanguageModelOptions{train.batch_size, train.segments_per_step, train.shuffle, train.seed,
                                    train.eval_batch_size, text_options(recipe).reset == "segments"});
    bench.tokens_per_step = train.batch_size * train.segments_per_step * recipe.model.segment_size;
  } else {
    SampleTask samples = make_sample_task(recipe, {train.eval_batch_size, train.eval_samples});
    fit_to(samples.shape, recipe.data_type(), bench.recipe.model);
    require_places(bench.recipe, samples.shape.length);
    take_vocabulary(bench.recipe.model, samples.shape.vocabulary);
    bench.model = build_with(bench.recipe, 2);
    if (samples.shape.num_classes == 0) require_decoder(*bench.model, samples.shape.answer_length, recipe.data_type());
    bench.tokens_per_step = train.batch_size * samples.tokens_per_sample;
    if (recipe.is_images()) {
      bench.unit = "images";
      require_image_size(bench.recipe, *bench.model);
    }
    bench.classes = samples.shape.classes;
    bench.task = std::move(samples.task);
  }
  return bench;
}

std::string model_folder(const std::string& path) {
  const std::string inside = base::join_path(path, "model");
  const bool is_run = !base::path_exists(base::join_path(path, "config.json")) && base::is_folder(inside);
  return is_run ? inside : path;
}

std::map<std::string, std::string> files_beside(const std::string& folder) {
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
  std::map<std::string, std::string> files;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string path = base::join_path(folder, name);
    if (name == "config.json" || name == "model.safetensors" || name == "README.md" || base::is_folder(path)) continue;
    files[name] = base::read_file(path, kMaxBytes);
  }
  return files;
}

std::optional<Recipe> recipe_beside(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / ".." / "recipe.toml").lexically_normal().string();
  if (!base::path_exists(path)) return std::nullopt;
  return read_recipe(RecipeFile::read(path).recipe());
}

StoredModel read_model(const std::string& folder) {
  base::require(base::is_folder(folder), "{}: expected a model folder, found {}", folder,
                base::path_exists(folder) ? "a file" : "nothing");
  if (base::path_exists(base::join_path(folder, std::string(data::Tokenizer::kFile)))) {
    bundle::LoadedModel loaded = bundle::load_model(folder);
    return {loaded.model, loaded.tokenizer, bundle::TextConventions::read(folder).resets_segments()};
  }
  return {bundle::load_any(folder).model, nullptr};
}

std::shared_ptr<const infer::Engine> make_engine(std::shared_ptr<const models::Model> model,
                                                 const std::optional<std::string>& precision,
                                                 std::string_view command) {
  infer::EngineOptions options;
  const std::string where = fmt::format("{}: --precision", command);
  if (precision) options.precision = ops::precision_of(*precision, where);
  const std::string objection = infer::unsupported_reason(*model);
  if (!objection.empty()) {
    base::require(!precision, "{} {}: the decoding engine cannot run this model: {}; leave the option out", where,
                  precision.value_or(""), objection);
    return nullptr;
  }
  return std::make_shared<const infer::Engine>(std::move(model), options);
}

void write_model(const std::string& folder, const Experiment& workbench, const ModelCard& card) {
  bundle::ModelFolder content;
  content.config = base::to_json(base::write_options(workbench.recipe.model)) + "\n";
  content.weights.tensors = weights::model_tensors(*workbench.model);
  if (workbench.tokenizer) {
    content.vocabulary = workbench.tokenizer->save();
    content.vocabulary[bundle::TextConventions::kFile] = bundle::TextConventions::of(text_options(workbench.recipe))
                                                             .text();
  }
  if (workbench.recipe.is_images())
    content.vocabulary[bundle::ImagePreprocessing::kFile] = bundle::ImagePreprocessing::of(
                                                                image_options(workbench.recipe))
                                                                .text();
  if (!workbench.classes.empty())
    content.vocabulary[bundle::kClassesFile] = fmt::format("{}\n", fmt::join(workbench.classes, "\n"));
  content.card = card_text(workbench, card);
  bundle::write_model_folder(folder, content);
}

}  // namespace mnemo::experiment
