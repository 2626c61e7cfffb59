#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/file_io.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/recipe.h"
#include "data/algorithmic.h"
#include "data/describe.h"

namespace mnemo::cli {
namespace {

struct DataArguments {
  std::string source;
  std::optional<std::string> unit, part, variant;
  std::vector<std::string> set;
  int64_t count = 5;
  int64_t seed = 0;
  bool json = false;
};

int describe_text(const data::TextOptions& text, const DataArguments& options) {
  base::require(!options.part, "data: --part goes with made tasks; a text's parts are all described");
  const data::TextDescription description = data::describe(text);
  if (options.json) {
    print_json(data::to_node(description));
  } else {
    print(data::to_text(description));
  }
  return kDone;
}

base::Node tokens_node(const at::Tensor& row) {
  base::Node node = base::Node::array();
  for (int64_t i = 0; i < row.size(0); ++i) node.push_back(row[i].item<int64_t>());
  return node;
}

int make_samples(const data::AlgorithmicOptions& task_options, const DataArguments& options) {
  base::require(options.count >= 1 && options.count <= 1'000'000, "data: --count: expected 1 to 1000000, found {}", options.count);
  const data::Part part = data::part_of(options.part.value_or("train"), "data: --part");
  const data::AlgorithmicTask task(task_options, options.seed);
  if (!options.json) {
    std::ostringstream lines;
    data::write_samples(task, part, options.count, lines);
    print(lines.str());
    return kDone;
  }
  base::Node samples = base::Node::array();
  for (int64_t i = 0; i < options.count; ++i) {
    const data::AlgorithmicBatch batch = task.batch(part, i, 1);
    samples.push_back(base::Node::table({{"input", tokens_node(batch.inputs[0])},
                                         {"target", tokens_node(batch.targets[0])},
                                         {"answer", tokens_node(batch.answer[0])}}));
  }
  print_json(base::Node::table({{"task", base::write_options(task_options)},
                                {"vocabulary_size", task.vocabulary_size()},
                                {"length", task.length()},
                                {"answer_length", task.answer_length()},
                                {"chance", task.chance()},
                                {"samples", samples}}));
  return kDone;
}

/// The [data] table: of a recipe, of a text file, or of a made task.
base::Node data_of(const DataArguments& options) {
  if (options.source.ends_with(".toml") || options.source.ends_with(".json")) {
    base::require(!options.unit, "data: --unit goes with a text; of a recipe use --set data.unit={}", options.unit.value_or(""));
    return RecipeFile::read(options.source, options.set).recipe(options.variant).at("data");
  }
  base::require(!options.variant, "data: --variant goes with a recipe");
  base::Node root = base::Node::table();
  base::Node data = base::Node::table();
  if (options.source == "copy" || options.source == "reverse" || options.source == "retrieval") {
    base::require(!options.unit, "data: --unit goes with a text");
    data.set("type", "algorithmic");
    data.set("task", options.source);
  } else {
    base::require(base::path_exists(options.source), "{}: no such file; expected a text, a recipe (.toml), or copy, reverse or "
                  "retrieval for samples of a made task", options.source);
    data.set("type", "text");
    data.set("train", options.source);
    data.set("unit", options.unit.value_or("characters"));
  }
  data.set_place_deep({std::make_shared<const std::string>("data"), 0, 0});
  root.set("data", std::move(data));
  for (const std::string& assignment : options.set) base::set_value(root, assignment);
  return read_recipe(root).data;
}

int run_data(const DataArguments& options) {
  const base::Node data = data_of(options);
  if (data.at("type").as_string() == "text") return describe_text(base::read_typed_options<data::TextOptions>(data), options);
  return make_samples(base::read_typed_options<data::AlgorithmicOptions>(data), options);
}

}  // namespace

void add_data(CLI::App& app) {
  auto options = std::make_shared<DataArguments>();
  Command(app, "data", "describes a text, or prints samples of a made task")
      .argument("SOURCE", options->source, "a text file, a recipe, or copy, reverse, retrieval")
      .option("--unit", options->unit, "UNIT", "of a text: bytes, characters or words (characters)")
      .option("--variant", options->variant, "NAME", "of a recipe with studies")
      .option("--set", options->set, "KEY=VALUE", "sets a key of the recipe, such as data.min_count=3; may be repeated")
      .option("-n,--count", options->count, "N", "samples to print")
      .option("--part", options->part, "PART", "of the samples: train, valid or test (train)")
      .option("--seed", options->seed, "N", "of the samples")
      .flag("--json", options->json, "print JSON")
      .action([options] { return run_data(*options); });
}

}  // namespace mnemo::cli
