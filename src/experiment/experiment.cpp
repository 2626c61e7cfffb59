#include "experiment/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file_io.h"
#include "base/glob.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text_format.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/published_config.h"
#include "bundle/require_model_folder.h"
#include "bundle/take_weights.h"
#include "core/head.h"
#include "core/model_outline.h"
#include "data/pairs/pair_options.h"
#include "experiment/finetune_model.h"
#include "experiment/translation_search.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"
#include "models/make_attention.h"
#include "models/presets.h"
#include "models/registry.h"
#include "tasks/types/pairs.h"
#include "text/open_tokenizer.h"

namespace mnemo::experiment {
namespace {

/// Sets `size`, or checks it if the recipe gives it.
void take_size(int64_t& size, int64_t vocabulary, const char* key, bool whole) {
  if (size == 0) size = vocabulary;
  base::require(whole ? size == vocabulary : size >= vocabulary,
                "recipe: 'model.embedding.{}': expected {}the data's {} different tokens, found {}", key,
                whole ? "" : "at least ", vocabulary, size);
}

/// A translation model has the special tokens of the data's tokenizer.
void take_tokens(const tasks::TaskSpec& task, models::ModelOptions& model) {
  if (const auto* pairs = dynamic_cast<const tasks::PairSpec*>(&task)) model.tokens = pairs->tokens_of(model.tokens);
}

void take_vocabulary(models::ModelOptions& model, const tasks::DataShape& data) {
  take_size(model.embedding.vocab_size, data.vocabulary, "vocab_size", data.whole_vocabulary);
  if (data.source_vocabulary == 0 || model.embedding.shared == models::EmbeddingOptions::Shared::all) return;
  int64_t size = model.embedding.source_vocab_size.value_or(0);
  take_size(size, data.source_vocabulary, "source_vocab_size", data.whole_vocabulary);
  model.embedding.source_vocab_size = size;
}

/// Tables of published models may have a few rows more than their tokenizers have tokens. Many more: it is the
/// tokenizer of another model.
void warn_of_other_vocabulary(const std::string& folder, const models::ModelOptions& model,
                              const tasks::DataShape& data) {
  const int64_t words = model.embedding.vocab_size, spare = words - data.vocabulary;
  if (data.vocabulary == 0 || spare <= 128 + data.vocabulary / 20) return;
  base::log_warning(
      "{}: the model has {} tokens and the data {}: expected the tokenizer that the model was trained with ({}), with "
      "another one its token ids mean other words",
      folder, words, data.vocabulary,
      text::has_tokenizer(folder) ? fmt::format("data.tokenizer = \"{}\"", folder)
                                  : std::string("its files, which this folder lacks, by data.tokenizer"));
}

/// Refuses a model that this machine cannot hold before any of it is allocated. `copies` of its parameters: with
/// gradients two.
std::shared_ptr<models::Model> build_with(const recipes::Recipe& recipe, int64_t copies) {
  const int64_t parameters = models::count_parameters(recipe.model), memory = base::usable_memory();
  const std::optional<int64_t> dim = recipe.model.backbone.dim();
  const std::string sizes = dim ? fmt::format("; embedding.vocab_size is {}, backbone.dim {}",
                                              recipe.model.embedding.vocab_size, *dim)
                                : "";
  base::require(parameters <= memory / copies / 4,
                "recipe: 'model': {} parameters{} need {} MB, and this machine has {} MB{}", base::grouped(parameters),
                copies > 1 ? " and their gradients" : "", base::grouped(parameters / 1'000'000 * copies * 4),
                base::grouped(memory / 1'000'000), sizes);
  return models::build(recipe.model, static_cast<uint64_t>(recipe.train.seed));
}

/// The rows that the model's attention has places for; nothing where that is any number, or a segment's at a time.
std::optional<core::RowLimit> places_of(const models::ModelOptions& model) {
  if (!models::outline_of(model).causal) return std::nullopt;
  return models::row_limit(model.backbone.stack().attention);
}

/// Throws InputError if a segment of such data has more rows than the model has learned positions. length: the longest
/// sample; 0: segments are full.
void require_positions(const models::ModelOptions& model, int64_t length) {
  const std::optional<int64_t> places = models::outline_of(model).position_rows;
  if (!places) return;
  const int64_t rows = length > 0 ? std::min(length, model.segment_size) : model.segment_size;
  base::require(rows <= *places,
                "recipe: 'model.segment_size': expected at most {}, the number of the model's learned positions "
                "(backbone.position.max_len), found {}",
                *places, model.segment_size);
}

/// Tokens go to models of tokens, images to models of images.
void require_fitting_model(const tasks::TaskSpec& task, const models::ModelOptions& model) {
  base::require(task.suits(model),
                "recipe: {} needs {}, found model.backbone.type = \"{}\", {} with head.type = \"{}\"; mnemo help "
                "recipe names all types",
                task.title(), task.detects() ? "a detector" : core::model_of(task.input()), model.backbone.type,
                core::model_of(model.backbone.input()), model.head.type());
}

void require_segment_size(int64_t found, int64_t wanted) {
  base::require(
      found == wanted || found == models::ModelOptions{}.segment_size,
      "recipe: 'model.segment_size': data.num_segments makes segments of {}; expected that or nothing, found {}",
      wanted, found);
}

/// Fills in the model's options that follow from the data, and refuses options that do not fit them.
void fit_to(const tasks::DataShape& data, const tasks::TaskSpec& task, models::ModelOptions& model) {
  if (data.segment_size) {
    require_segment_size(model.segment_size, *data.segment_size);
    model.segment_size = *data.segment_size;
  }
  for (const std::string& name : data.classes)
    base::require(!name.empty() && name.find('\n') == std::string::npos,
                  "{}: class {} of the data: expected a name of one line, with which the model's folder lists it",
                  task.title(), base::in_quotes(name));
  if (data.num_classes == 0) return;
  base::require(task.detects() || data.num_classes > 1, "recipe: 'data.train': expected at least two classes, found {}",
                data.classes.empty() ? "1" : base::in_quotes(data.classes.front()));
  const auto classes = model.num_classes();
  base::require(classes.has_value(),
                "recipe: 'model.head': {} is classified; expected type = "
                "\"classification\", found \"{}\"",
                task.title(), model.head.type());
  base::require(*classes == 0 || *classes == data.num_classes,
                "recipe: 'model.head.num_classes': expected 0 or the data's {}, found {}", data.num_classes, *classes);
  model.set_num_classes(data.num_classes);
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// The recipe without the paths of this machine.
base::Node shown_recipe(const recipes::Recipe& recipe) {
  base::Node node = base::write_options(recipe);
  base::Node* data = node.find("data");
  for (const char* key : tasks::TaskSpec::kPathKeys) {
    base::Node* path = data->find(key);
    if (path != nullptr && path->is_string() && !path->as_string().empty())
      *path = base::Node(file_name(path->as_string()));
  }
  if (base::Node* init = node.find("init"); init != nullptr && init->is_string())
    *init = base::Node(file_name(init->as_string()));
  return node;
}

std::string card_text(const Experiment& experiment, const ModelCard& card) {
  std::string metrics;
  for (const auto& [name, value] : card.metrics) metrics += fmt::format("| {} | {:.4f} |\n", name, value);
  const bool writes = experiment.tokenizer != nullptr && experiment.model->head().predicts_next_token() &&
                      !experiment.model->sees_ahead();
  std::string commands;
  std::istringstream lines(card.command);
  for (std::string line; std::getline(lines, line);) commands += "    " + line + "\n";
  std::string text = fmt::format("---\nlibrary_name: mnemo\n{}---\n\n# {}\n\n",
                                 writes ? "pipeline_tag: text-generation\n" : "", card.title);
  if (!experiment.recipe.about.empty()) text += experiment.recipe.about + "\n\n";
  text += fmt::format("{} parameters. {}\n\nTrained for {} on {} {} in {} with Mnemo {} (LibTorch {}):\n\n{}\n",
                      base::grouped(experiment.model->parameters().count()), experiment.recipe.task()->describe(),
                      base::counted(card.steps, "step"), base::grouped(card.tokens), experiment.targets,
                      base::duration_text(card.seconds), base::this_machine().mnemo, base::this_machine().libtorch,
                      commands);
  for (const std::string& notice : experiment.notices) text += notice + "\n\n";
  if (!metrics.empty()) text += "## On held-out data\n\n| metric | value |\n| --- | ---: |\n" + metrics + "\n";
  if (writes)
    text +=
        "## Use\n\n    mnemo generate FOLDER --prompt \"…\" --tokens 200\n    mnemo eval FOLDER --data text.txt\n\n";
  return text + "## Recipe\n\n```toml\n" + base::to_toml(shown_recipe(experiment.recipe)) + "```\n";
}

bundle::BundleContent content_of(const Experiment& experiment) {
  const recipes::Recipe& recipe = experiment.recipe;
  std::map<std::string, std::string> files = recipe.task()->model_files(recipe.model);
  files.insert(experiment.files.begin(), experiment.files.end());
  return {.options = recipe.model,
          .model = *experiment.model,
          .tokenizer = experiment.tokenizer,
          .files = std::move(files),
          .classes = experiment.classes};
}

}  // namespace

namespace {

/// Whether a recipe has no [model].
bool left_out(const models::ModelOptions& model) {
  return base::write_options(model) == base::write_options(models::ModelOptions());
}

}  // namespace

models::ModelOptions complete_model(const recipes::Recipe& recipe, const std::optional<tasks::DataShape>& assumed) {
  const auto task = recipe.task();
  if (!recipe.finetune && !task->completes(recipe.model)) return recipe.model;
  models::ModelOptions model = recipe.model;
  // With [finetune] and no [model], options come from the trained model.
  if (recipe.finetune && left_out(recipe.model)) model = bundle::read_bundle(recipe.finetune->model).options();
  require_fitting_model(*task, model);
  take_tokens(*task, model);
  const tasks::DataShape data = assumed ? *assumed : task->shape(model);
  if (recipe.finetune) {
    model = models::plan_finetuning(model, *recipe.finetune, data.classes).options;
  } else {
    fit_to(data, *task, model);
  }
  take_vocabulary(model, data);
  return model;
}

std::shared_ptr<models::Model> build_model(const recipes::Recipe& recipe,
                                           const std::optional<tasks::DataShape>& assumed) {
  recipes::Recipe filled = recipe;
  filled.model = complete_model(recipe, assumed);
  return build_with(filled, 1);
}

void require_buildable(const recipes::Recipe& recipe) {
  // Images: their size may be that of the data.
  if (!recipe.model.backbone.dim() || recipe.finetune) return;
  const auto task = recipe.task();
  if (const auto limit = places_of(recipe.model)) task->require_places(*limit, recipe.model);
  if (const auto size = task->segment_size()) require_segment_size(recipe.model.segment_size, *size);
  models::ModelOptions declared = recipe.model;
  if (declared.embedding.vocab_size == 0) declared.embedding.vocab_size = 1 << 24;  // the data's, not known yet
  if (declared.num_classes() == 0) declared.set_num_classes(2);
  models::count_parameters(declared);
}

namespace {

/// [model] beside [finetune] says what the trained model is, or nothing: no model is made of it. It may leave out
/// attached tasks, classes of the head and whatever has its default.
void require_same_model(models::ModelOptions given, models::ModelOptions stored, const std::string& folder) {
  if (left_out(given)) return;
  if (given.memory.empty()) {
    std::erase_if(stored.memory,
                  [](const base::TypedOptions& memory) { return memory.type() == memory::LearnableTokens::kType; });
  }
  if (given.num_classes() == 0) given.set_num_classes(stored.num_classes().value_or(0));
  const base::Node expected = base::write_options(stored), found = base::write_options(given),
                   defaults = base::write_options(models::ModelOptions());
  for (const auto& [key, value] : found.members()) {
    const base::Node *same = expected.find(key), *usual = defaults.find(key);
    base::require((same != nullptr && *same == value) || (usual != nullptr && *usual == value),
                  "recipe: 'model.{}' differs from the model in {}, which [finetune] starts from; leave [model] out",
                  key, folder);
  }
}

/// The trained model that a recipe starts from, with the facts of the recipe's data.
void start_finetuning(Experiment& bench) {
  recipes::Recipe& recipe = bench.recipe;
  const bundle::Bundle stored = bundle::read_bundle(recipe.finetune->model);
  const std::string& folder = stored.folder;
  const models::ModelOptions& options = stored.options();
  const std::optional<bundle::ImagePreprocessing> facts = bundle::ImagePreprocessing::find(folder);
  if (base::Node* crop = recipe.data.find("test_crop"); crop != nullptr && facts)
    crop->set("resize",
              base::write_options(facts->test_crop).at("resize"));  // a model of an earlier version keeps its own
  const auto task = recipe.task();
  base::require(recipe.train.only.empty() && !recipe.train.lora,
                "recipe: 'train.only', 'train.lora': the regime of [finetune] decides what is trained; leave them out");
  base::require(task->classifies_images(),
                "recipe: [finetune] is for images; expected [data] of images, found type \"{}\"", task->type());
  require_same_model(recipe.model, options, folder);
  recipe.model = options;
  tasks::LoadedTask loaded = task->load(recipe.model, recipe.task_settings());
  FinetuneModel made = finetune_model(*stored.model, folder, *recipe.finetune, loaded.shape.classes,
                                      static_cast<uint64_t>(recipe.train.seed));
  if (facts && made.plan.has_task_memory) {
    const data::ImageOptions images = task->images(recipe.model);
    base::require(images.image_size == facts->image_size && images.mean == facts->mean && images.std == facts->std &&
                      base::write_options(images.test_crop) == base::write_options(facts->test_crop),
                  "recipe: 'data': expected image_size, mean, std and test_crop as the model has them ({}: {}, or what "
                  "its config.json says), since all tasks read the same pixels",
                  folder, bundle::ImagePreprocessing::kFile);
  }
  recipe.model = made.plan.options;
  bench.model = made.model;
  task->check_model(*bench.model, loaded.shape);
  bench.tokens_per_step = recipe.train.batch_size * loaded.tokens_per_row;
  bench.unit = task->counted();
  bench.targets = task->targets();
  bench.notices = loaded.notices;
  bench.classes = made.plan.has_task_memory ? bundle::class_names(folder) : loaded.shape.classes;
  bench.finetune = std::move(made.plan);
  bench.task = std::move(loaded.task);
}

/// "; fresh: a, b and 3 more": nothing where there are none.
std::string titled(const char* title, const std::vector<std::string>& names) {
  return names.empty() ? "" : title + base::listed(names, 8);
}

/// The linear maps of all layers that are not among the trained parameters.
std::vector<std::string> linear_maps(const models::Model& model, const std::vector<std::string>& only) {
  std::vector<std::string> names;
  for (const layers::Parameter& parameter : model.parameters().all()) {
    const bool map = parameter.tensor.dim() == 2 && parameter.kind == layers::ParameterKind::weight &&
                     parameter.name.ends_with(".weight") && parameter.name.find(".layers.") != std::string::npos;
    if (map && !base::matches_any(only, parameter.name)) names.push_back(parameter.name);
  }
  return names;
}

}  // namespace

void settle_fresh(Experiment& experiment, bool adds) {
  constexpr const char* kAllLinear = "all-linear";
  train::TrainOptions& train = experiment.recipe.train;
  if (train.lora) {
    std::vector<std::string>& targets = train.lora->targets;
    const bool all = std::erase(targets, kAllLinear) > 0;
    if (adds && train.only.empty()) {
      for (const std::string& name : experiment.fresh) {
        if (!base::matches_any(targets, name)) train.only.push_back(name);
      }
      if (!train.only.empty()) base::log_info("LoRA: also trains fresh weights: {}", base::listed(train.only, 4));
    }
    if (all) {
      for (std::string& name : linear_maps(*experiment.model, train.only)) targets.push_back(std::move(name));
    }
  }
  if (train.only.empty() && !train.lora) return;
  std::vector<std::string> untrained;
  for (const std::string& name : experiment.fresh) {
    if (!base::matches_any(train.only, name) && !(train.lora && base::matches_any(train.lora->targets, name)))
      untrained.push_back(name);
  }
  if (!untrained.empty())
    base::log_warning("train.only, train.lora: weights with random initial values are not trained: {}",
                      fmt::join(untrained, ", "));
}

void require_same_vocabulary(const std::string& folder, const Experiment& experiment, const std::string& place) {
  text::Files before;
  if (text::has_tokenizer(folder)) {
    before = text::open_tokenizer(folder)->defining_files();
  } else if (!experiment.files.empty()) {
    try {
      before = data::defining_files(data::read_vocabularies(bundle::files_beside(folder), folder));
    } catch (const base::InputError& error) {
      base::input_error("{}: {}", place, error.what());
    }
  }
  // The files of pairs include some that are only kept, so they may be more.
  const bool same = experiment.tokenizer ? before == experiment.tokenizer->defining_files()
                                         : std::ranges::all_of(before, [&](const auto& file) {
                                             const auto found = experiment.files.find(file.first);
                                             return found != experiment.files.end() && found->second == file.second;
                                           });
  base::require(same,
                "{}: {}: its vocabulary is not that of the recipe's data, so its token ids would mean other words",
                place, folder);
}

Experiment make_experiment(const recipes::Recipe& recipe) {
  Experiment bench{.recipe = recipe, .tokenizer = {}, .model = {}, .task = {}};
  recipe.task()->require_data();
  if (recipe.finetune) {
    start_finetuning(bench);
    return bench;
  }
  const auto task = recipe.task();
  base::require(recipe.init != "",
                "recipe: 'model.from': expected the folder of the model to start from, found none: --set "
                "model.from=FOLDER, or --set model.from=unset for fresh weights");
  models::ModelOptions& model = bench.recipe.model;
  require_fitting_model(*task, model);
  take_tokens(*task, model);
  require_buildable(recipe);
  tasks::TaskSettings settings = recipe.task_settings();
  settings.generation = [&] { return published_search(recipe); };
  tasks::LoadedTask loaded = task->load(model, settings);
  fit_to(loaded.shape, *task, model);
  if (const auto limit = places_of(model); limit && loaded.shape.length > 0)
    limit->require(loaded.shape.length, "the longest sample has so many tokens");
  require_positions(model, loaded.shape.length);
  take_vocabulary(model, loaded.shape);
  bench.model = build_with(bench.recipe, 2);
  bench.files = std::move(loaded.files);
  bench.tokenizer = loaded.tokenizer;
  if (recipe.init) {
    const std::string folder = bundle::find_model_folder(*recipe.init);
    bundle::require_model_folder(folder);
    // A published model may have got more words, and come without a tokenizer.
    const bool has_own = !bench.files.empty() || text::has_tokenizer(folder);
    if (has_own && bundle::find_published(folder).format == nullptr)
      require_same_vocabulary(folder, bench, "recipe: 'init'");
    warn_of_other_vocabulary(*recipe.init, model, loaded.shape);
    const bundle::Taken taken = bundle::take_weights(*recipe.init, *bench.model, loaded.shape.classes);
    base::log_info("{}: initial weights{}{}{}", *recipe.init, titled("; fresh: ", taken.fresh),
                   titled("; not used: ", taken.unused), taken.note.empty() ? "" : "; " + taken.note);
    bench.fresh = taken.fresh;
    bench.files.insert(taken.files.begin(), taken.files.end());
  }
  task->check_model(*bench.model, loaded.shape);
  bench.tokens_per_step = recipe.train.batch_size * loaded.tokens_per_row;
  bench.unit = task->counted();
  bench.targets = task->targets();
  bench.notices = loaded.notices;
  if (bench.model->sees_ahead()) bench.notices.emplace_back(models::kSeesAheadNotice);
  bench.classes = loaded.shape.classes;
  bench.task = std::move(loaded.task);
  return bench;
}

std::optional<recipes::Recipe> recipe_beside(const std::string& folder) {
  if (folder.empty()) return std::nullopt;  // the model is not in a folder
  const std::string path = (std::filesystem::path(folder) / ".." / "recipe.toml").lexically_normal().string();
  if (!base::path_exists(path)) return std::nullopt;
  return recipes::read_recipe_file(path);
}

std::optional<recipes::Recipe> own_recipe(const bundle::Bundle& stored) {
  return stored.format == nullptr ? recipe_beside(stored.folder) : std::nullopt;
}

std::map<std::string, std::string> model_files(const Experiment& experiment) {
  return bundle::files_of(content_of(experiment));
}

void write_model(const std::string& folder, const Experiment& experiment, const ModelCard& card) {
  bundle::BundleContent content = content_of(experiment);
  content.card = card_text(experiment, card);
  bundle::write_bundle(folder, content);
}

}  // namespace mnemo::experiment
