#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/recipes.h"
#include "experiment/inspection.h"

namespace mnemo::cli {
namespace {

struct InspectArguments {
  std::string source;
  std::optional<std::string> html, svg, png, image_size;
  experiment::InspectOptions inspect;
  bool json = false;
};

/// A recipe with studies: one line for each variant, none of which is built.
int list_variants(const recipes::RecipeFile& file, const InspectArguments& options) {
  using Align = base::TextTable::Align;
  base::require(!options.html && !options.svg && !options.png && !options.inspect.looks() && !options.inspect.cost,
                "inspect: pictures, inputs and --cost need one model; choose it with --variant");
  base::TextTable table({"study", "variant", "parameters"}, {Align::left, Align::left, Align::right});
  base::Node rows = base::Node::array();
  for (const auto& [study, variant, parameters] : experiment::variant_sizes(file)) {
    table.add_row({study, variant, base::grouped(parameters)});
    rows.push_back(base::Node::table({{"study", study}, {"variant", variant}, {"parameters", parameters}}));
  }
  if (options.json) {
    base::print_json(rows);
  } else {
    base::print(table.text(base::output_columns()) + "\nTo see one in full: mnemo inspect " +
                base::shell_quoted(options.source) + " --variant " +
                (file.studies().size() > 1 ? "STUDY/VARIANT\n" : "VARIANT\n"));
  }
  return base::kDone;
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

int inspect(InspectArguments options) {
  options.source = recipe_path(options.source);
  options.inspect.image_size = image_size_of(options.image_size);
  const std::optional<std::string>* const written[] = {&options.svg, &options.png, &options.html};
  for (const auto* one : written) {
    for (const auto* other : written) {
      base::require(one == other || !*one || *one != *other,
                    "inspect: expected different files for --svg, --png and --html, found {} twice",
                    base::in_quotes(one->value_or("")));
    }
  }
  if (base::path_exists(options.source) && !base::is_folder(options.source) && !options.inspect.variant) {
    const recipes::RecipeFile file = recipes::RecipeFile::read(options.source, options.inspect.set);
    if (!file.studies().empty()) return list_variants(file, options);
  }
  const experiment::Inspection found = experiment::inspect_source(options.source, options.inspect);
  const std::string svg = options.svg ? found.svg() : "", png = options.png ? found.png() : "";
  if (options.svg) base::write_file_atomic(*options.svg, svg);
  if (options.png) base::write_file_atomic(*options.png, png);
  if (options.html) {
    const std::optional<std::string>& variant = options.inspect.variant;
    base::write_file_atomic(*options.html, found.html(options.source + (variant ? ": " + *variant : "")));
  }
  if (options.json) {
    base::print_json(found.to_node());
  } else {
    base::print(found.text());
  }
  for (const auto& file : {options.svg, options.png, options.html}) {
    if (file) base::log_info("wrote {}", *file);
  }
  return base::kDone;
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectArguments>();
  Command(app, "inspect", "show a model's parameters, state, attention masks and cost, and where it looks in an input")
      .argument("SOURCE", options->source, "a model folder, a run's folder, a checkpoint, a recipe, or the name of one")
      .option(
          "--checkpoint", options->inspect.checkpoint, "WHICH",
          "checkpoint of a run: latest, best or a step (default: its model, or the best checkpoint if it has none yet)")
      .option("--variant", options->inspect.variant, "NAME",
              "variant of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--set", options->inspect.set, "KEY=VALUE", "set a key of the recipe; may be repeated")
      .option("--text", options->inspect.input.text, "TEXT", "run this text, and show where attention looks")
      .option("--tokens", options->inspect.input.tokens, "LIST",
              "like --text, with tokens: numbers separated by spaces")
      .option("--sample", options->inspect.input.sample, "N",
              "like --text, with sequence N of the run's first training batch (for a text its first segments)")
      .option("--image", options->inspect.image, "FILE",
              "image model: run this image, and show where attention looks and what GRC mixes")
      .option("--images", options->inspect.images, "FOLDER",
              "image model: run a folder, and count the images in which some row attends with 0.5 or more to memory, a "
              "class token or itself")
      .option("--layers", options->inspect.choice.layers, "LIST",
              "layers to show, from 0: 0 or 0,2 or 0-3 (default all)")
      .option("--heads", options->inspect.choice.heads, "LIST",
              "heads to show (default all; for an image the mean of all, and these heads)")
      .option("--segment", options->inspect.choice.segment, "N",
              "segment of the input to show, from 1 (default: of those whose memory is filled, the last with the most "
              "tokens)")
      .flag("--cost", options->inspect.cost,
            "show FLOPs, parameters and bytes of state part by part, and what each memory adds")
      .option("--batch", options->inspect.batch, "N", "with --cost: sequences in parallel (default 1)")
      .option("--segment-size", options->inspect.segment_size, "N",
              "with --cost: tokens of the segment (default: the model's)")
      .option("--image-size", options->image_size, "HxW",
              "with --cost: height and width of the images (default: the model's)")
      .option("--position", options->inspect.position, "N",
              "with --cost: tokens before the segment, in whole segments (default: until memories are full)")
      .option("--html", options->html, "FILE", "write everything as one HTML page")
      .option("--svg", options->svg, "FILE",
              "draw the attention mask, or the attention over the input if there is one, as SVG")
      .option("--png", options->png, "FILE", "draw that picture as PNG")
      .flag("--json", options->json, "print JSON")
      .footer(
          "mnemo inspect runs/mine --text \"Once upon a time\" --layers 0 --png maps.png\nmnemo inspect models/vit "
          "--image picture.jpg --png heat.png\nmnemo inspect runs/mine --cost")
      .action([options] { return inspect(*options); });
}

}  // namespace mnemo::cli
