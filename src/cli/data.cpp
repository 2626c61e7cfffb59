#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>

#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/output.h"
#include "cli/command.h"
#include "data/answers/algorithmic.h"
#include "data/answers/listops_set.h"
#include "data/answers/quadratic.h"
#include "data/answers/task_file.h"
#include "data/describe.h"
#include "data/images/image_describe.h"
#include "data/prepare.h"
#include "data/text/corpus.h"
#include "experiment/recipe.h"

namespace mnemo::cli {
namespace {

struct DataArguments {
  std::string source;
  std::vector<std::string> more;
  std::optional<std::string> unit, part, variant, out;
  std::vector<std::string> set;
  int64_t count = 5;
  int64_t seed = 0;
  bool json = false;
  bool check = false;
};

int describe_text(const data::TextOptions& text, const DataArguments& options) {
  base::require(!options.part, "data: --part goes with made tasks; a text's parts are all described");
  const data::TextDescription description = data::describe(text);
  if (options.json) {
    base::print_json(data::to_node(description));
  } else {
    base::print(data::to_text(description));
  }
  return base::kDone;
}

base::Node tokens_node(const at::Tensor& row) {
  base::Node node = base::Node::array();
  for (int64_t i = 0; i < row.size(0); ++i) node.push_back(row[i].item<int64_t>());
  return node;
}

/// Samples that ask for an answer, as lines or as JSON with `facts` beside them.
int show_samples(const data::SampleSource& source, base::Node facts, const DataArguments& options) {
  const data::Part part = data::part_of(options.part.value_or("train"), "data: --part");
  const int64_t count = std::min(options.count, source.size(part).value_or(options.count));
  base::require(count > 0, "data: --part: {} has no part {}", source.name(), options.part.value_or("train"));
  if (!options.json) {
    std::ostringstream lines;
    data::write_samples(source, part, count, lines);
    base::print(lines.str());
    return base::kDone;
  }
  base::Node samples = base::Node::array();
  for (int64_t i = 0; i < count; ++i) {
    const data::SampleBatch batch = source.batch(part, i, 1);
    base::Node sample = base::Node::table({{"input", tokens_node(batch.inputs[0])},
                                           {"target", tokens_node(batch.targets[0])},
                                           {"answer", tokens_node(data::answer_column(batch, 0))}});
    if (source.name() == "quadratic") {
      std::vector<int64_t> tokens(static_cast<size_t>(source.length()));
      for (size_t t = 0; t < tokens.size(); ++t) tokens[t] = batch.inputs[0][static_cast<int64_t>(t)].item<int64_t>();
      tokens.push_back(batch.targets[0][source.length() - 1].item<int64_t>());
      sample.set("text", data::quadratic_text(tokens));
    }
    samples.push_back(std::move(sample));
  }
  for (const auto& [name, number] :
       {std::pair("vocabulary_size", source.vocabulary_size()), std::pair("length", source.length()),
        std::pair("answer_length", source.answer_length())}) {
    facts.set(name, number);
  }
  facts.set("samples", std::move(samples));
  base::print_json(facts);
  return base::kDone;
}

/// An image set; with --check the answer is no where an image is broken.
int describe_image_set(const data::ImageOptions& images, const DataArguments& options) {
  base::require(!options.part,
                "data: --part goes with samples that are printed; of an image set all parts are described");
  const data::ImageDescription description = data::describe_images(images, options.check);
  if (options.json) {
    base::print_json(data::to_node(description));
  } else {
    base::print(data::to_text(description));
  }
  const bool broken = std::any_of(description.parts.begin(), description.parts.end(),
                                  [](const auto& part) { return !part.broken.empty(); });
  return broken ? base::kAnswerIsNo : base::kDone;
}

/// The first expressions of a part, as a file of Long Range Arena.
int show_listops(const data::ListOpsOptions& listops, const DataArguments& options) {
  const data::Part wanted = data::part_of(options.part.value_or("train"), "data: --part");
  std::string lines = "Source\tTarget\n";
  base::Node samples = base::Node::array();
  int64_t shown = 0;
  const auto show = [&](const data::ListOpsExpression& expression) {
    if (shown++ >= options.count) return;
    const std::string text = data::listops_text(expression.tokens);
    lines += fmt::format("{}\t{}\n", text, expression.value);
    samples.push_back(base::Node::table(
        {{"source", text}, {"target", expression.value}, {"tokens", static_cast<int64_t>(expression.tokens.size())}}));
  };
  if (listops.train.empty()) {
    data::make_listops(listops, [&](data::Part part, const data::ListOpsExpression& expression) {
      if (part == wanted) show(expression);
      return shown < options.count;
    });
  } else {
    const std::string& file = wanted == data::Part::train   ? listops.train
                              : wanted == data::Part::valid ? listops.valid
                                                            : listops.test;
    base::require(!file.empty(), "data: --part: the recipe has no part {}", options.part.value_or("train"));
    data::read_listops(file, show);
  }
  if (options.json) {
    base::print_json(base::Node::table(
        {{"data", base::write_options(listops)}, {"vocabulary_size", data::kListOpsVocabulary}, {"samples", samples}}));
  } else {
    base::print(lines);
  }
  return base::kDone;
}

/// A word that names made data, with their [data] type; empty for a file.
std::string made_type(const std::string& source) {
  if (source == "listops") return source;
  for (const char* task : {"copy", "reverse", "retrieval", "quadratic"}) {
    if (source == task) return "algorithmic";
  }
  return {};
}

/// The [data] table: of a recipe, of a text file, or of a made task.
base::Node data_of(const DataArguments& options) {
  if (options.source.ends_with(".toml") || options.source.ends_with(".json")) {
    base::require(!options.unit, "data: --unit goes with a text; of a recipe use --set data.unit={}",
                  options.unit.value_or(""));
    return experiment::RecipeFile::read(options.source, options.set).recipe(options.variant).at("data");
  }
  base::require(!options.variant, "data: --variant goes with a recipe");
  base::Node root = base::Node::table();
  base::Node data = base::Node::table();
  if (const std::string type = made_type(options.source); !type.empty()) {
    base::require(!options.unit, "data: --unit goes with a text");
    data.set("type", type);
    if (type == "algorithmic") data.set("task", options.source);
  } else if (base::is_folder(options.source)) {
    base::require(!options.unit, "data: --unit goes with a text");
    const base::Node found = base::write_options(data::detect_images(options.source));
    data.set("type", "images");
    for (const auto& [key, value] : found.members()) {
      if (key == "format" || key == "train" || key == "valid" || key == "test" || key == "valid_fraction")
        data.set(key, value);
    }
  } else {
    base::require(base::path_exists(options.source),
                  "{}: no such file; expected a text, the folder of an image set, a recipe (.toml), `prepare`, or "
                  "copy, reverse, retrieval, "
                  "quadratic or listops for made samples",
                  options.source);
    data.set("type", "text");
    data.set("train", options.source);
    data.set("unit", options.unit.value_or("characters"));
  }
  data.set_place_deep({std::make_shared<const std::string>("data"), 0, 0});
  root.set("data", std::move(data));
  for (const std::string& assignment : options.set) base::set_value(root, assignment);
  return experiment::read_recipe(root).data;
}

/// `mnemo data prepare NAME [PATH] --out DIR`.
int prepare(const DataArguments& options) {
  std::string known;
  for (const data::DataSource& source : data::data_sources())
    known += fmt::format("\n  {:<13} {}: {}", source.name, source.what, source.from);
  base::require(!options.more.empty() && options.more.size() <= 2,
                "data: prepare: expected NAME and PATH; what there is, and where it comes from:{}", known);
  const std::string name = options.more.front(), path = options.more.size() == 2 ? options.more[1] : "";
  const auto& sources = data::data_sources();
  base::require(std::any_of(sources.begin(), sources.end(), [&](const auto& source) { return source.name == name; }),
                "data: prepare: unknown data '{}'; what there is, and where it comes from:{}", name, known);
  base::require(options.out.has_value(), "data: prepare: expected --out DIR, the folder to write to");
  base::require(!path.empty() || name == "listops",
                "data: prepare {0}: expected the file or folder to prepare behind the name; what there is, and "
                "where it comes from:{1}",
                name, known);
  base::require(!options.unit && !options.part && !options.variant,
                "data: prepare: --unit, --part and --variant go with data that are shown");
  base::require(options.set.empty() || name == "listops" || name == "text", "data: prepare {}: has no keys to set",
                name);
  if (name == "images") {
    const std::string recipe = data::prepare_images(path, *options.out);
    if (options.json) {
      base::print_json(base::Node::table({{"recipe", recipe}}));
    } else {
      base::print(fmt::format("[data] of a recipe: {}\n", recipe));
    }
    return base::kDone;
  }
  base::Node root = base::Node::table(
      {{"data", base::Node::table({{"type", name == "listops" ? "listops" : "text"}})}});
  root.find("data")->set_place_deep({std::make_shared<const std::string>("data"), 0, 0});
  for (const std::string& assignment : options.set) base::set_value(root, assignment);
  const base::Node keys = experiment::read_recipe(root).data;
  data::Prepared prepared;
  if (name == "enwik8") {
    prepared = data::prepare_enwik8(path, *options.out);
  } else if (name == "text") {
    const auto text = base::read_typed_options<data::TextOptions>(keys);
    prepared = data::prepare_text(path, *options.out, text.valid_fraction, text.test_fraction);
  } else if (name == "listops") {
    const auto listops = base::read_typed_options<data::ListOpsOptions>(keys);
    prepared = data::prepare_listops(path, *options.out, listops);
  } else {
    prepared = data::prepare_wikitext(name, path, *options.out);
  }
  if (options.json) {
    base::print_json(data::to_node(prepared));
  } else {
    base::print(data::to_text(prepared));
  }
  return base::kDone;
}

int run_data(const DataArguments& options) {
  if (options.source == "prepare") return prepare(options);
  base::require(options.more.empty(), "data: expected one SOURCE, found '{}' behind it",
                options.more.empty() ? "" : options.more.front());
  base::require(!options.out, "data: --out goes with prepare");
  base::require(options.count >= 1 && options.count <= 1'000'000, "data: --count: expected 1 to 1000000, found {}",
                options.count);
  const base::Node data = data_of(options);
  const std::string& type = data.at("type").as_string();
  base::require(!options.check || type == "images", "data: --check goes with images, found [data] of type \"{}\"",
                type);
  if (type == "images") return describe_image_set(base::read_typed_options<data::ImageOptions>(data), options);
  if (type == "text") return describe_text(base::read_typed_options<data::TextOptions>(data), options);
  if (type == "listops") return show_listops(base::read_typed_options<data::ListOpsOptions>(data), options);
  if (type == "task_file") {
    const auto file = base::read_typed_options<data::TaskFileOptions>(data);
    return show_samples(data::TaskFiles(file, false, 0), base::Node::table({{"data", base::write_options(file)}}),
                        options);
  }
  const auto made = base::read_typed_options<data::AlgorithmicOptions>(data);
  const data::AlgorithmicTask task(made, options.seed);
  return show_samples(task, base::Node::table({{"task", base::write_options(made)}, {"chance", task.chance()}}),
                      options);
}

}  // namespace

void add_data(CLI::App& app) {
  auto options = std::make_shared<DataArguments>();
  Command(app, "data", "describe a text or image set, print samples of a task, or prepare a standard data set")
      .argument("SOURCE", options->source,
                "text file, image folder, recipe, or one of copy, reverse, retrieval, quadratic, listops; or `prepare`")
      .arguments(
          "NAME PATH", options->more,
          "prepare: one of enwik8, wikitext-2, wikitext-103, text, listops, images, then the file or folder to read",
          false)
      .option("--out", options->out, "DIR", "prepare: folder for the output and data.toml")
      .option("--unit", options->unit, "UNIT", "text: bytes, characters or words (default characters)")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe, such as data.min_count=3; may be repeated")
      .option("-n,--count", options->count, "N", "number of samples to print")
      .option("--part", options->part, "PART", "samples: train, valid or test (default train)")
      .option("--seed", options->seed, "N", "seed of the samples")
      .flag("--check", options->check, "images: decode all of them; exit status 1 if any is unreadable")
      .flag("--json", options->json, "print JSON")
      .footer("mnemo data my.txt\nmnemo data copy -n 3\nmnemo data prepare wikitext-103 FOLDER --out data/wikitext-103")
      .action([options] { return run_data(*options); });
}

}  // namespace mnemo::cli
