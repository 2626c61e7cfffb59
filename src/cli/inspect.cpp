#include <fmt/format.h>

#include <memory>

#include "base/file_io.h"
#include "base/log.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/model_facts.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "cli/summary.h"
#include "cli/workbench.h"

namespace mnemo::cli {
namespace {

struct InspectArguments {
  std::string source;
  std::optional<std::string> variant, html, svg;
  std::vector<std::string> set;
  bool json = false;
};

std::shared_ptr<const models::Model> model_of(const InspectArguments& options) {
  if (base::is_folder(options.source)) {
    base::require(options.set.empty() && !options.variant, "inspect: --set and --variant go with a recipe; {} is a model",
                  options.source);
    return read_model(model_folder(options.source)).model;
  }
  return build_model(read_recipe(RecipeFile::read(options.source, options.set).recipe(options.variant)));
}

/// A recipe with studies: one line for each variant.
int list_variants(const RecipeFile& file, const InspectArguments& options) {
  using Align = base::TextTable::Align;
  base::require(!options.html && !options.svg, "inspect: --html and --svg show one model; choose it with --variant");
  base::TextTable table({"study", "variant", "parameters", "state B/seq", "state B/model"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right});
  base::Node rows = base::Node::array();
  for (const RecipeStudy& study : file.studies()) {
    for (const RecipeVariant& variant : study.variants) {
      for (size_t p = 0; p < study.points.size(); ++p) {
        if (!variant.recipes[p]) continue;
        const std::string name = study.title(variant, p);
        const ModelFacts facts = look_into(*build_model(read_recipe(*variant.recipes[p])));
        table.add_row({study.name, name, grouped(facts.parameters), grouped(facts.state_bytes), grouped(facts.model_state_bytes)});
        rows.push_back(base::Node::table({{"study", study.name}, {"variant", name}, {"model", to_node(facts)}}));
      }
    }
  }
  if (options.json) {
    print_json(rows);
  } else {
    print(table.text() + "\nOne of them in full: mnemo inspect " + options.source + " --variant NAME\n");
  }
  return kDone;
}

int inspect(const InspectArguments& options) {
  base::require(base::path_exists(options.source), "{}: expected a model folder, a run's folder or a recipe (.toml), found nothing", options.source);
  if (!base::is_folder(options.source) && !options.variant) {
    const RecipeFile file = RecipeFile::read(options.source, options.set);
    if (!file.studies().empty()) return list_variants(file, options);
  }
  const std::shared_ptr<const models::Model> model = model_of(options);
  const ModelFacts facts = look_into(*model);
  if (options.svg) base::write_file_atomic(*options.svg, facts.table.draw_svg());
  if (options.html) {
    const std::string title = options.source + (options.variant ? ": " + *options.variant : "");
    base::write_file_atomic(*options.html, to_html(facts, title, base::to_toml(base::write_options(model->options()))));
  }
  if (options.json) {
    print_json(to_node(facts));
  } else {
    print(to_text(facts));
  }
  for (const auto& file : {options.svg, options.html}) {
    if (file) base::log_info("wrote {}", *file);
  }
  return kDone;
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectArguments>();
  Command(app, "inspect", "shows a model's parameters, state, who attends to whom, sigma(lambda)")
      .argument("SOURCE", options->source, "a model folder, a run's folder, or a recipe")
      .option("--variant", options->variant, "NAME", "of a recipe with studies: \"NAME\" or \"STUDY/NAME\"")
      .option("--set", options->set, "KEY=VALUE", "sets a key of the recipe; may be repeated")
      .option("--html", options->html, "FILE", "write everything as one HTML page")
      .option("--svg", options->svg, "FILE", "write who attends to whom as a picture")
      .flag("--json", options->json, "print JSON")
      .action([options] { return inspect(*options); });
}

}  // namespace mnemo::cli
