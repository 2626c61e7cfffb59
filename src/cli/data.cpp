#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "base/atomic_folder.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/node_path.h"
#include "base/output.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/recipes.h"
#include "cli/signals.h"
#include "data/detection/detection_sets.h"
#include "data/prepare/registry.h"
#include "data/text/text_files.h"
#include "recipes/recipe.h"
#include "tasks/registry.h"
#include "text/train_tokenizer.h"

namespace mnemo::cli {
namespace {

struct DataArguments {
  std::string source;
  std::vector<std::string> more;
  std::optional<std::string> unit, part, variant, out, type;
  std::optional<int64_t> vocab_size, count, seed;
  std::vector<std::string> set;
  bool json = false;
  bool check = false;

  /// Refuses options that only apply to data that are shown.
  void require_nothing_shown(std::string_view verb) const {
    base::require(!unit && !part && !variant && !count && !seed && !check,
                  "data: {}: --unit, --part, --variant, --count, --seed and --check go with data that are shown", verb);
  }
};

/// The data.type of --set; empty if none says it.
std::string set_type(const std::vector<std::string>& assignments) {
  base::Node root = base::Node::table();
  for (const std::string& assignment : assignments)
    if (base::assigned_key(assignment) == "data.type") base::set_value(root, assignment);
  const base::Node* data = root.find("data");
  return data == nullptr || !data->at("type").is_string() ? std::string() : data->at("type").as_string();
}

/// The [data] table: of a recipe, of a file or folder, or of made data.
base::Node data_of(const DataArguments& options) {
  const bool annotations = data::detection_format(options.source).has_value();
  if (options.source.ends_with(".toml") || (options.source.ends_with(".json") && !annotations)) {
    base::require(!options.unit, "data: --unit goes with a text; of a recipe use --set data.unit={}",
                  options.unit.value_or(""));
    return recipes::read_recipe_file(options.source, options.set, options.variant).data;
  }
  base::require(!options.variant, "data: --variant goes with a recipe");
  std::optional<base::Node> data = tasks::find_data(options.source, set_type(options.set));
  base::require(
      data.has_value(),
      "{}: no such file; expected texts, pairs, images, annotations of objects, a recipe (.toml), `prepare`, or "
      "{} for "
      "generated samples",
      options.source, fmt::join(tasks::made_words(), ", "));
  if (options.unit) {
    base::require(data->contains("unit"),
                  "data: --unit goes with a text, found {}; to read it as one: --set data.type=text",
                  tasks::TaskTypes::all().options.meaning(data->at("type").as_string()));
    data->set("unit", *options.unit);
  }
  const std::string& type = data->at("type").as_string();
  const auto& types = tasks::TaskTypes::all();
  if (base::path_exists(options.source) && type != types.default_type && set_type(options.set).empty())
    base::log_info("{}: read as {} ({}); as a text: --set data.type={}", options.source, type,
                   types.options.meaning(type), types.default_type);
  data->set_place_deep({std::make_shared<const std::string>("data"), 0, 0});
  base::Node root = base::Node::table();
  root.set("data", std::move(*data));
  for (const std::string& assignment : options.set) base::set_value(root, assignment);
  return recipes::read_recipe(root).data;
}

/// The [data] table of a set: its defaults, changed by --set.
base::Node keys_of(const data::DataSet& set, const std::string& path, const DataArguments& options) {
  base::Node own = set.own_keys ? set.own_keys(path) : base::Node::table();
  own.set("type", set.data_type);
  base::Node root = base::Node::table({{"data", own}});
  root.find("data")->set_place_deep({std::make_shared<const std::string>("data"), 0, 0});
  for (const std::string& assignment : options.set) base::set_value(root, assignment);
  for (const base::Node::Member& member : root.members())
    base::require(member.key == "data", "data: prepare: --set changes keys of [data] alone, found '{}'", member.key);
  for (const base::Node::Member& member : own.members())
    base::require(root.at("data").at(member.key) == member.value,
                  "data: prepare: data.{} is not for --set, since the set decides it; remove it", member.key);
  return recipes::read_recipe(root).data;
}

/// `mnemo data prepare NAME [PATH] --out DIR`.
int prepare(const DataArguments& options) {
  const base::Registry<data::DataSet>& sets = data::data_sets();
  std::string known;
  for (const std::string& name : sets.names())
    known += fmt::format("\n  {:<13} {}: {}", name, sets.find(name).what, sets.find(name).from);
  base::require(!options.more.empty() && options.more.size() <= 2,
                "data: prepare: expected NAME and PATH; data sets and their sources:{}", known);
  const std::string name = options.more.front(), path = options.more.size() == 2 ? options.more[1] : "";
  base::require(sets.contains(name), "data: prepare: unknown data '{}'; data sets and their sources:{}", name, known);
  const data::DataSet& set = sets.find(name);
  base::require(
      !path.empty() || set.path_is_optional,
      "data: prepare {0}: expected the file or folder to prepare after the name; data sets and their sources:{1}", name,
      known);
  base::require(options.out.has_value(), "data: prepare: expected --out DIR, the folder to write to");
  options.require_nothing_shown("prepare");
  const bool has_keys = !set.data_type.empty();
  base::require(options.set.empty() || has_keys, "data: prepare {}: has no keys to set", name);
  const data::PrepareTarget out{.folder = *options.out, .should_stop = pending_signal, .stop_guard = [] {
                                  return std::make_shared<SignalGuard>("stopping");
                                }};
  const data::Prepared prepared = set.prepare(path, out, has_keys ? keys_of(set, path, options) : base::Node());
  if (options.json) {
    base::print_json(data::to_node(prepared));
  } else {
    base::print(data::to_text(prepared));
  }
  return base::kDone;
}

/// `mnemo data tokenizer FILE... --type TYPE --vocab-size N --out DIR`.
int make_tokenizer(const DataArguments& options) {
  base::require(!options.more.empty(), "data: tokenizer: expected at least one FILE");
  base::require(options.type.has_value(), "data: tokenizer: expected --type TYPE, one of {}",
                fmt::join(text::tokenizer_types(), ", "));
  base::require(options.out.has_value(), "data: tokenizer: expected --out DIR, the folder to write to");
  options.require_nothing_shown("tokenizer");
  base::require(options.set.empty(), "data: tokenizer: has no keys to set");
  std::vector<text::TextSource> texts;
  for (const std::string& file : options.more) texts.push_back(data::open_text(file).without_byte_order_mark());
  const auto tokenizer = text::train_tokenizer(*options.type, texts, options.vocab_size.value_or(0));
  const text::Files files = tokenizer->save();
  std::vector<std::string> names, written;
  for (const auto& [name, content] : files) {
    names.push_back(name);
    written.push_back(base::join_path(*options.out, name));
  }
  base::require_replaceable(*options.out, names);
  base::AtomicFolder folder(*options.out);
  for (const auto& [name, content] : files) base::write_file_atomic(folder.file(name), content);
  folder.commit();
  if (options.json) {
    base::Node paths = base::Node::array();
    for (const std::string& path : written) paths.push_back(path);
    base::print_json(
        base::Node::table({{"type", *options.type}, {"vocabulary_size", tokenizer->size()}, {"files", paths}}));
  } else {
    base::print(fmt::format("{} tokens: {}\n", base::grouped(tokenizer->size()), fmt::join(written, ", ")));
  }
  return base::kDone;
}

int run_data(DataArguments options) {
  base::require(options.source == "tokenizer" || (!options.type && !options.vocab_size),
                "data: --type and --vocab-size go with tokenizer");
  if (options.source == "prepare") return prepare(options);
  if (options.source == "tokenizer") return make_tokenizer(options);
  options.source = recipe_path(options.source);
  base::require(options.more.empty(), "data: expected one SOURCE, found '{}' after it",
                options.more.empty() ? "" : options.more.front());
  base::require(!options.out, "data: --out goes with prepare and tokenizer");
  const base::Node table = data_of(options);
  const auto task = tasks::task_spec(table);
  base::require(!options.check || task->can_check(), "data: --check goes with images, found {}", task->title());
  base::require(!options.count || task->shows_samples(),
                "data: --count goes with data whose samples are printed; {} is described as a whole", task->title());
  base::require(!options.seed || task->endless(), "data: --seed goes with generated samples, found {}", task->title());
  base::require(options.seed.value_or(0) >= 0, "data: --seed: expected at least 0, found {}", options.seed.value_or(0));
  task->require_data();
  const tasks::Shown shown = task->show(
      {options.part, options.count.value_or(5), options.seed.value_or(0), options.check, options.json});
  if (options.json) {
    base::print_json(shown.json);
  } else {
    base::print(shown.text);
  }
  return shown.sound ? base::kDone : base::kAnswerIsNo;
}

}  // namespace

void add_data(CLI::App& app) {
  auto options = std::make_shared<DataArguments>();
  Command(app, "data",
          "describe texts, pairs or images, print samples of a task, prepare a standard data set, or make a tokenizer")
      .argument(
          "SOURCE", options->source,
          fmt::format(
              "text, folder of texts or images, table of pairs or labelled texts, recipe (or its name), or one of "
              "{}; or `prepare` or `tokenizer`",
              fmt::join(tasks::made_words(), ", ")))
      .arguments(
          "NAME", options->more,
          fmt::format("prepare: one of {}, then the file or folder to read; tokenizer: the texts to make it from",
                      fmt::join(data::data_sets().names(), ", ")),
          false)
      .option("--out", options->out, "DIR", "prepare: folder for the output and data.toml; tokenizer: for its files")
      .option("--type", options->type, "TYPE", fmt::format("tokenizer: {}", fmt::join(text::tokenizer_types(), ", ")))
      .option(
          "--vocab-size", options->vocab_size, "N",
          "tokenizer: number of tokens: at most for characters and words (default all), exactly for unigram and bpe")
      .option("--unit", options->unit, "UNIT", "text: bytes, characters or words (default characters)")
      .option("--variant", options->variant, "NAME", "variant of a recipe with studies")
      .option("--set", options->set, "KEY=VALUE", "set a key of the recipe, such as data.min_count=3; may be repeated")
      .option("-n,--count", options->count, "N", "number of samples to print (default 5)", base::range(1, 1'000'000))
      .option("--part", options->part, "PART", "samples: train, valid or test (default train)")
      .option("--seed", options->seed, "N", "seed of generated samples (default 0)")
      .flag("--check", options->check, "images: decode all of them; exit status 1 if any is unreadable")
      .flag("--json", options->json, "print JSON")
      .footer(
          "mnemo data my.txt\nmnemo data copy -n 3\nmnemo data prepare wikitext-103 FOLDER --out data/wikitext-103\n"
          "mnemo data tokenizer train.en train.de --type unigram --vocab-size 8000 --out tokenizer")
      .action([options] { return run_data(*options); });
}

}  // namespace mnemo::cli
