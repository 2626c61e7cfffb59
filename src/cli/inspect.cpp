#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/inspect_input.h"
#include "experiment/experiment.h"
#include "experiment/recipe.h"
#include "experiment/sample_task.h"
#include "inspect/attention_summary.h"
#include "inspect/cost_summary.h"
#include "inspect/draw/attention_picture.h"
#include "inspect/draw/span_picture.h"
#include "inspect/image_attention.h"
#include "inspect/model_summary.h"
#include "models/build.h"
#include "study/summary.h"

namespace mnemo::cli {
namespace {

struct InspectArguments {
  std::string source;
  std::optional<std::string> variant, html, svg, png, image, image_size;
  std::vector<std::string> set;
  InspectInput input;
  inspect::AttentionChoice choice;
  bool cost = false;
  std::optional<int64_t> batch, segment_size, position;
  bool json = false;
  bool given() const { return input.given() || image.has_value(); }
};

/// The model, with what its data are read by.
struct Inspected {
  experiment::StoredModel stored;
  std::optional<experiment::Recipe> recipe;
  std::vector<inspect::ScalarPoint> scalars;  ///< of its training
  std::string folder = {};                    ///< the model's; empty: a recipe's
};

Inspected inspected_of(const InspectArguments& options) {
  if (base::is_folder(options.source)) {
    base::require(options.set.empty() && !options.variant,
                  "inspect: --set and --variant go with a recipe; {} is a model", options.source);
    const std::string folder = experiment::model_folder(options.source);
    Inspected inspected{experiment::read_model(folder),
                        options.input.sample ? experiment::recipe_beside(folder) : std::nullopt,
                        {},
                        folder};
    inspected.scalars = inspect::read_scalars(folder == options.source ? base::join_path(folder, "..")
                                                                       : options.source);
    return inspected;
  }
  const experiment::Recipe recipe = experiment::read_recipe(
      experiment::RecipeFile::read(options.source, options.set).recipe(options.variant));
  if (!options.input.given()) return {{experiment::build_model(recipe), nullptr}, recipe, {}};
  const experiment::Experiment bench = experiment::make_experiment(recipe);
  return {{bench.model, bench.tokenizer, recipe.is_text() && experiment::text_options(recipe).reset == "segments"},
          recipe,
          {}};
}

/// A recipe with studies: one line for each variant, none of which is built.
int list_variants(const experiment::RecipeFile& file, const InspectArguments& options) {
  using Align = base::TextTable::Align;
  base::require(!options.html && !options.svg && !options.png && !options.given() && !options.cost,
                "inspect: pictures, inputs and --cost are of one model; choose it with --variant");
  base::TextTable table({"study", "variant", "parameters"}, {Align::left, Align::left, Align::right});
  std::map<std::string, int64_t> vocabularies;  // of texts, each of which is read once
  base::Node rows = base::Node::array();
  for (const experiment::RecipeStudy& study : file.studies()) {
    for (const experiment::RecipeVariant& variant : study.variants) {
      for (size_t p = 0; p < study.points.size(); ++p) {
        if (!variant.recipes[p]) continue;
        const std::string name = study.title(variant, p);
        experiment::Recipe recipe = experiment::read_recipe(*variant.recipes[p]);
        int64_t& vocabulary = vocabularies[base::to_json(recipe.data)];
        const bool reads = recipe.is_text() && recipe.model.embedding.vocab_size == 0;
        if (reads) recipe.model.embedding.vocab_size = vocabulary;
        const models::ModelOptions model = experiment::complete_model(recipe);
        if (reads) vocabulary = model.embedding.vocab_size;
        const int64_t parameters = models::count_parameters(model);
        table.add_row({study.name, name, base::grouped(parameters)});
        rows.push_back(base::Node::table({{"study", study.name}, {"variant", name}, {"parameters", parameters}}));
      }
    }
  }
  if (options.json) {
    base::print_json(rows);
  } else {
    base::print(table.text() + "\nOne of them in full: mnemo inspect " + options.source + " --variant NAME\n");
  }
  return base::kDone;
}

void check(const InspectArguments& options) {
  base::require(base::path_exists(options.source),
                "{}: expected a model folder, a run's folder or a recipe (.toml), found nothing", options.source);
  const bool chooses = options.choice.layers || options.choice.heads || options.choice.segment;
  base::require(options.given() || !chooses,
                "inspect: --layers, --heads and --segment choose from what an input does; give one with --text, "
                "--tokens, --sample or --image");
  base::require(!options.image || !options.input.given(),
                "inspect: expected one of --text, --tokens, --sample and --image");
  base::require(options.cost || !(options.batch || options.segment_size || options.position || options.image_size),
                "inspect: --batch, --segment-size, --image-size and --position go with --cost");
}

/// What the page shows of an input, of a training and of the cost.
std::string page_sections(const inspect::AttentionPicture& picture, const std::optional<inspect::ModelCost>& cost) {
  std::string html;
  const auto drawn = [](const inspect::AttentionPicture& part) {
    return "<div class=\"scroll\">" + inspect::svg_of(part) + "</div>\n";
  };
  if (picture.attention != nullptr)
    html += "<h2>Attention</h2>\n" + inspect::to_html(*picture.attention) + drawn({picture.attention});
  if (picture.image != nullptr)
    html += "<h2>Attention</h2>\n" + inspect::to_html(*picture.image) + drawn({nullptr, picture.image});
  if (picture.scalars != nullptr && !picture.scalars->empty())
    html += "<h2>Over training</h2>\n<div class=\"scroll\">" + inspect::scalars_svg(*picture.scalars) + "</div>\n";
  if (cost) html += "<h2>Cost</h2>\n" + inspect::to_html(*cost);
  return html;
}

/// "HxW" as numbers.
std::vector<int64_t> image_size_of(const std::optional<std::string>& text) {
  if (!text) return {};
  int height = 0, width = 0, read = 0;
  const bool good = std::sscanf(text->c_str(), "%5dx%5d%n", &height, &width, &read) == 2 &&
                    static_cast<size_t>(read) == text->size();
  base::require(good, "inspect: --image-size: expected HxW, such as 224x224, found '{}'", base::printable(*text));
  return {height, width};
}

inspect::ModelCost cost_of(const core::Model& model, const InspectArguments& options) {
  if (const auto* vision = dynamic_cast<const models::VisionModel*>(&model)) {
    base::require(!options.segment_size && !options.position,
                  "inspect: --segment-size and --position go with a model of texts; images have --image-size");
    return inspect::count_cost(*vision,
                               inspect::ImageCostOptions{options.batch.value_or(1), image_size_of(options.image_size)});
  }
  base::require(!options.image_size, "inspect: --image-size goes with a model of images");
  return inspect::count_cost(models::require_language_model(model, "inspect"),
                             inspect::CostOptions{options.batch.value_or(1), options.segment_size, options.position});
}

inspect::ImageAttention look_at(const std::string& image, const Inspected& inspected,
                                const inspect::AttentionChoice& choice) {
  const models::VisionModel& model = models::require_vision_model(*inspected.stored.model, "inspect: --image");
  if (!inspected.recipe)
    return inspect::inspect_image(model, bundle::ImagePreprocessing::read(inspected.folder), image, choice);
  experiment::Recipe recipe = *inspected.recipe;
  recipe.model = model.options();  // it may stand in the model that [finetune] names
  return inspect::inspect_image(model, bundle::ImagePreprocessing::of(experiment::image_options(recipe)), image,
                                choice);
}

int inspect(const InspectArguments& options) {
  check(options);
  if (!base::is_folder(options.source) && !options.variant) {
    const experiment::RecipeFile file = experiment::RecipeFile::read(options.source, options.set);
    if (!file.studies().empty()) return list_variants(file, options);
  }
  const Inspected inspected = inspected_of(options);
  const core::Model& model = *inspected.stored.model;
  const inspect::ModelSummary facts = inspect::summarize(model);
  std::optional<inspect::AttentionSummary> attention;
  if (options.input.given()) {
    const models::Model& texts = models::require_language_model(model, "inspect: --text, --tokens and --sample");
    const InputSegments input = read_input(options.input, inspected.stored, inspected.recipe);
    attention = inspect::look_at_attention(texts, input.segments, input.words, options.choice);
  }
  std::optional<inspect::ImageAttention> image;
  if (options.image) image = look_at(*options.image, inspected, options.choice);
  const bool looked = attention || image;
  std::optional<inspect::ModelCost> cost;
  if (options.cost) cost = cost_of(model, options);
  const inspect::AttentionPicture picture{attention ? &*attention : nullptr, image ? &*image : nullptr,
                                          &inspected.scalars};
  base::require(!options.png || looked || !inspected.scalars.empty(),
                "inspect: --png draws what an input does; give one with --text, --tokens, --sample or --image");
  base::require(!options.svg || looked || !facts.tables.empty(),
                "inspect: --svg draws the spans of a model of texts; of images there are none, give one with --image");
  if (options.svg)
    base::write_file_atomic(*options.svg, looked ? inspect::svg_of(picture) : inspect::svg_of(facts.tables[0].table));
  if (options.png) base::write_file_atomic(*options.png, inspect::png_of(picture));
  if (options.html) {
    const std::string title = options.source + (options.variant ? ": " + *options.variant : "");
    base::write_file_atomic(
        *options.html, inspect::to_html(facts, title, base::to_toml(base::write_options(models::options_of(model))),
                                        page_sections(picture, cost)));
  }
  if (options.json) {
    base::Node node = to_node(facts);
    if (attention) node.set("attention", to_node(*attention));
    if (image) node.set("attention", to_node(*image));
    if (!inspected.scalars.empty()) node.set("training", to_node(inspected.scalars));
    if (cost) node.set("cost", to_node(*cost));
    base::print_json(node);
  } else {
    // An input or the cost is what was asked for; the rest can be had without.
    std::string text = looked || cost ? std::string() : inspect::to_text(facts);
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "\n") + part; };
    if (attention) add(inspect::to_text(*attention));
    if (image) add(inspect::to_text(*image));
    if (!inspected.scalars.empty() && (looked || !cost)) add(inspect::to_text(inspected.scalars));
    if (cost) add(inspect::to_text(*cost));
    base::print(text);
  }
  for (const auto& file : {options.svg, options.png, options.html}) {
    if (file) base::log_info("wrote {}", *file);
  }
  return base::kDone;
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectArguments>();
  Command(app, "inspect",
          "shows a model's parameters, state, who attends to whom, what it costs, and where it looks in an input")
      .argument("SOURCE", options->source, "a model folder, a run's folder, or a recipe")
      .option("--variant", options->variant, "NAME", "of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--set", options->set, "KEY=VALUE", "sets a key of the recipe; may be repeated")
      .option("--text", options->input.text, "TEXT", "run this text, and show where attention looks")
      .option("--tokens", options->input.tokens, "LIST", "the same of tokens: numbers with blanks between")
      .option("--sample", options->input.sample, "N",
              "the same of sequence N of the run's first training batch (of a text: its first segments)")
      .option("--image", options->image, "FILE",
              "of a model of images: run this image, and show where attention looks on it, and what GRC mixes")
      .option("--layers", options->choice.layers, "LIST", "layers to show, from 0: 0 or 0,2 or 0-3 (all)")
      .option("--heads", options->choice.heads, "LIST",
              "heads to show (all; of an image: the mean of all, and those named)")
      .option("--segment", options->choice.segment, "N", "segment of the input to show, from 1 (the last)")
      .flag("--cost", options->cost,
            "show FLOPs, parameters and bytes of state part by part, and what each memory adds")
      .option("--batch", options->batch, "N", "of --cost: sequences side by side (1)")
      .option("--segment-size", options->segment_size, "N", "of --cost: tokens of the segment (the model's)")
      .option("--image-size", options->image_size, "HxW", "of --cost: height and width of the images (the model's)")
      .option("--position", options->position, "N",
              "of --cost: tokens before it, whole segments (until memories are full)")
      .option("--html", options->html, "FILE", "write everything as one HTML page")
      .option("--svg", options->svg, "FILE",
              "write who attends to whom as a picture: as it may, or, of an input, as it did")
      .option("--png", options->png, "FILE", "the same of an input, as dots")
      .flag("--json", options->json, "print JSON")
      .footer(
          "mnemo inspect runs/mine --text \"Once upon a time\" --layers 0 --png maps.png\nmnemo inspect models/vit "
          "--image picture.jpg --png heat.png\nmnemo inspect runs/mine --cost")
      .action([options] { return inspect(*options); });
}

}  // namespace mnemo::cli
