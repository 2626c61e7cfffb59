#include "experiment/inspection.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/text_format.h"
#include "bundle/class_names.h"
#include "bundle/detection_input.h"
#include "core/level_head.h"
#include "experiment/experiment.h"
#include "inspect/cost_summary.h"
#include "inspect/draw/attention_picture.h"
#include "inspect/draw/attention_view.h"
#include "inspect/draw/rasterise.h"
#include "inspect/draw/span_picture.h"
#include "models/image_model.h"
#include "models/text_model.h"
#include "page/document.h"

namespace mnemo::experiment {
namespace {

void check(const InspectOptions& options) {
  const bool chooses = options.choice.layers || options.choice.heads || options.choice.segment;
  base::require(options.looks() || !chooses,
                "inspect: --layers, --heads and --segment select from the attention over an input; give one with "
                "--text, --tokens, --sample, --image or --images");
  base::require(options.image.has_value() + options.images.has_value() + options.input.given() <= 1,
                "inspect: expected one of --text, --tokens, --sample, --image and --images");
  base::require(
      options.cost || !(options.batch || options.segment_size || options.position || !options.image_size.empty()),
      "inspect: --batch, --segment-size, --image-size and --position go with --cost");
}

/// The assumed shape of data that the recipe does not name: parameters, masks and cost do not depend on data.
std::optional<tasks::DataShape> assumed_shape(const recipes::Recipe& recipe) {
  const auto task = recipe.task();
  if (recipe.finetune || !task->completes(recipe.model)) return {};
  std::optional<tasks::DataShape> assumed = task->usual_shape();
  if (assumed && recipe.model.embedding.vocab_size > 0) assumed->vocabulary = 0;
  return assumed;
}

void say_assumed(const std::optional<tasks::DataShape>& assumed, const std::string& source) {
  if (!assumed) return;
  std::string said;
  if (assumed->vocabulary > 0)
    said = fmt::format("a vocabulary of {} is assumed (model.embedding.vocab_size)",
                       base::grouped(assumed->vocabulary));
  if (assumed->num_classes > 0)
    said += fmt::format("{}{} classes are assumed (model.head.num_classes)", said.empty() ? "" : ", ",
                        assumed->num_classes);
  if (!said.empty()) base::log_info("{}: no data.train; {}", source, said);
}

/// A model without weights of its own yet; with data where an input is to be run.
bundle::Bundle bundle_of(const recipes::Recipe& recipe, bool with_data,
                         const std::optional<tasks::DataShape>& assumed) {
  bundle::Bundle made;
  if (with_data) {
    Experiment experiment = make_experiment(recipe);
    made = {.model = experiment.model, .tokenizer = experiment.tokenizer};
  } else {
    made = {.model = build_model(recipe, assumed)};
  }
  const auto task = recipe.task();
  if (task->text() != nullptr) made.conventions = bundle::TextConventions::of(*task->text());
  return made;
}

inspect::ModelCost cost_of(const bundle::Bundle& stored, const InspectOptions& options) {
  if (stored.is_images()) {
    base::require(!options.segment_size && !options.position,
                  "inspect: --segment-size and --position go with a model of texts; images have --image-size");
    return inspect::count_cost(*stored.images(),
                               {.batch = options.batch.value_or(1), .image_size = options.image_size});
  }
  base::require(options.image_size.empty(), "inspect: --image-size goes with a model of images");
  return inspect::count_cost(*stored.text("inspect"),
                             inspect::CostOptions{options.batch.value_or(1), options.segment_size, options.position});
}

/// How the model reads images.
bundle::ImagePreprocessing preprocessing_of(const bundle::Bundle& stored,
                                            const std::optional<recipes::Recipe>& recipe) {
  if (!stored.folder.empty() || !recipe) return stored.preprocessing();
  // The model's own options: they may stand in the model that [finetune] names.
  return bundle::ImagePreprocessing::of(recipe->task()->images(stored.model->options()));
}

Inspection inspect_with(const bundle::Bundle& stored, const std::optional<recipes::Recipe>& recipe,
                        const InspectOptions& options) {
  Inspection found{.summary = inspect::summarize(*stored.model),
                   .options = base::to_toml(base::write_options(stored.options()))};
  if (options.input.given()) {
    const auto model = stored.text("inspect: --text, --tokens and --sample");
    const InputSegments input = read_input(options.input, stored, recipe);
    found.attention = inspect::look_at_input(*model, input.segments, input.words, options.choice,
                                             inspect::kMaxViewWeights);
  }
  const auto images = [&] { return models::as<models::ImageModel>(stored.model, "inspect: --image and --images"); };
  if (options.image) {
    const auto look = [&](const auto& facts) {
      return inspect::inspect_image(*images(), facts, *options.image, options.choice);
    };
    const bool detects = !stored.folder.empty() && core::level_head(*images()) != nullptr;
    found.image = detects ? look(bundle::read_detection_input(stored.folder)) : look(preprocessing_of(stored, recipe));
    const std::vector<std::string> labels = stored.folder.empty() ? std::vector<std::string>()
                                                                  : bundle::own_head(*images(), stored.folder).labels;
    for (inspect::SeenObject& object : found.image->objects) {
      if (!labels.empty()) object.label = labels[static_cast<size_t>(object.category)];
    }
  }
  if (options.images)
    found.images = inspect::count_image_shares(*images(), preprocessing_of(stored, recipe), *options.images,
                                               options.choice);
  if (options.cost) found.cost = cost_of(stored, options);
  return found;
}

/// Adds the page's parts for an input, a training and the cost.
void add_sections(page::Document& page, const Inspection& found) {
  const auto drawn = [](const inspect::AttentionPicture& part, const char* name) {
    return page::figure(inspect::svg_of(part), "", name);
  };
  if (found.attention) {
    page.add("<h2>Attention</h2>\n", "attention");
    const inspect::AttentionSummary& shown = found.attention->shown();
    inspect::add_attention_view(page, *found.attention);
    page.add("<h3>Shares</h3>\n" + inspect::to_html(*found.attention), "the shares of attention");
    page.add(fmt::format("<h3>All maps{}</h3>\n",
                         shown.num_segments > 1 ? fmt::format(" of segment {}", shown.segment) : std::string()) +
                 drawn({&shown}, "attention maps"),
             "the attention maps");
  }
  if (found.image) {
    page.add("<h2>Attention</h2>\n", "attention");
    inspect::add_image_view(page, *found.image);
    page.add("<h3>Shares</h3>\n" + inspect::to_html(*found.image), "the shares of attention");
    page.add("<h3>All maps</h3>\n" + drawn({nullptr, &*found.image}, "heat maps"), "the heat maps");
  }
  if (found.images) page.add("<h2>Attention</h2>\n" + inspect::to_html(*found.images), "the shares of images");
  if (!found.scalars.empty())
    page.add("<h2>Over training</h2>\n" + page::figure(inspect::scalars_svg(found.scalars), "", "over training") +
                 inspect::to_html(found.scalars),
             "the gauges over training");
  if (found.cost) page.add("<h2>Cost</h2>\n" + inspect::to_html(*found.cost), "the cost");
}

inspect::AttentionPicture picture_of(const Inspection& found) {
  return {found.attention ? &found.attention->shown() : nullptr, found.image ? &*found.image : nullptr, &found.scalars};
}

}  // namespace

std::string Inspection::text() const {
  // With an input or the cost, show only that; the rest is shown without them.
  std::string text = looked() || cost ? std::string() : inspect::to_text(summary);
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "\n") + part; };
  if (attention) add(inspect::to_text(attention->shown()));
  if (image) add(inspect::to_text(*image));
  if (images) add(inspect::to_text(*images));
  if (!scalars.empty() && (looked() || !cost)) add(inspect::to_text(scalars));
  if (cost) add(inspect::to_text(*cost));
  return text;
}

base::Node Inspection::to_node() const {
  base::Node node = inspect::to_node(summary);
  if (attention) node.set("attention", inspect::to_node(attention->shown()));
  if (image) node.set("attention", inspect::to_node(*image));
  if (images) node.set("image_shares", inspect::to_node(*images));
  if (!scalars.empty()) node.set("training", inspect::to_node(scalars));
  if (cost) node.set("cost", inspect::to_node(*cost));
  return node;
}

std::string Inspection::html(const std::string& title) const {
  page::Document page(title);
  inspect::add_overview(page, summary);
  add_sections(page, *this);
  inspect::add_details(page, summary, options);
  return page.html();
}

std::string Inspection::svg() const {
  base::require(!images || attention || image || !scalars.empty(),
                "inspect: --images counts shares, which have no picture; drop --svg and --png, or give --image");
  base::require(looked() || !summary.tables.empty(),
                "inspect: without an input, --svg and --png draw the attention mask of a text model; for an image "
                "model give --image");
  return looked() ? inspect::svg_of(picture_of(*this)) : inspect::svg_of(summary.tables[0].table);
}

std::string Inspection::png() const { return inspect::png_of(svg()); }

Inspection inspect_bundle(const bundle::Bundle& stored, const InspectOptions& options) {
  check(options);
  base::require(options.set.empty() && !options.variant, "inspect: --set and --variant go with a recipe; {} is a model",
                stored.folder);
  return inspect_with(stored, options.input.sample ? recipe_beside(stored.folder) : std::nullopt, options);
}

Inspection inspect_source(const std::string& source, const InspectOptions& options) {
  base::require(base::path_exists(source),
                "{}: no such file or folder; expected a model folder, a run's folder or a recipe (.toml)", source);
  check(options);
  if (base::is_folder(source)) {
    base::require(options.set.empty() && !options.variant,
                  "inspect: --set and --variant go with a recipe; {} is a model", source);
    const bundle::Bundle stored = bundle::read_bundle(source, options.checkpoint);
    Inspection found = inspect_bundle(stored, options);
    found.scalars = inspect::read_scalars(stored.folder == source ? base::join_path(source, "..") : source);
    return found;
  }
  base::require(!options.checkpoint, "inspect: --checkpoint goes with a run; {} is a recipe", source);
  const recipes::Recipe recipe = recipes::read_recipe_file(source, options.set, options.variant);
  const bool reads = options.input.text || options.input.sample;
  const std::optional<tasks::DataShape> assumed = reads ? std::nullopt : assumed_shape(recipe);
  say_assumed(assumed, source);
  return inspect_with(bundle_of(recipe, options.input.given() && !assumed, assumed), recipe, options);
}

std::vector<VariantSize> variant_sizes(const recipes::RecipeFile& file) {
  std::vector<VariantSize> sizes;
  std::map<std::string, int64_t> vocabularies;  // of texts, each of which is read once
  std::optional<tasks::DataShape> assumed;
  for (const recipes::RecipeStudy& study : file.studies()) {
    for (const recipes::RecipeVariant& variant : study.variants) {
      for (size_t p = 0; p < study.points.size(); ++p) {
        if (!variant.recipes[p]) continue;
        recipes::Recipe recipe = recipes::read_recipe(*variant.recipes[p]);
        const std::optional<tasks::DataShape> shape = assumed_shape(recipe);
        if (shape && (!assumed || assumed->vocabulary < shape->vocabulary)) assumed = shape;
        int64_t& vocabulary = vocabularies[base::to_json(recipe.data)];
        const bool reads = !shape && recipe.task()->text() != nullptr && recipe.model.embedding.vocab_size == 0;
        if (reads) recipe.model.embedding.vocab_size = vocabulary;
        const models::ModelOptions model = complete_model(recipe, shape);
        if (reads) vocabulary = model.embedding.vocab_size;
        sizes.push_back({study.name, study.title(variant, p), models::count_parameters(model)});
      }
    }
  }
  say_assumed(assumed, file.path());
  return sizes;
}

}  // namespace mnemo::experiment
