#include "tasks/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "models/image_model.h"
#include "models/options.h"
#include "tests/support/expect_error.h"
#include "tests/support/painted_objects.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::tasks {
namespace {

using base::Node;

/// The task of a [data] table, with missing keys filled in as in a recipe.
std::unique_ptr<const TaskSpec> spec_of(Node table) {
  table.set_place_deep({std::make_shared<const std::string>("test.toml"), 1, 1});
  return task_spec(TaskTypes::all().options.complete(table));
}

Node table_of(const std::string& type) {
  Node table = Node::table({{"type", type}});
  for (const base::OptionDoc& doc : TaskTypes::all().options.describe(type)) {
    if (doc.path == "train") table.set("train", "there/is/no.file");
  }
  return table;
}

models::ModelOptions model_of(Node node = Node::table()) { return base::read_options<models::ModelOptions>(node); }

TEST(TaskRegistry, EveryTypeAnswersBeforeItsDataAreRead) {
  const TaskTypes& all = TaskTypes::all();
  EXPECT_EQ(all.options.types(), all.entries.names());
  EXPECT_TRUE(all.entries.contains(all.default_type));
  for (const std::string& type : all.entries.names()) {
    const auto spec = spec_of(table_of(type));
    EXPECT_EQ(spec->type(), type);
    EXPECT_FALSE(spec->describe().empty()) << type;
    EXPECT_FALSE(spec->metric().name.empty()) << type;
    EXPECT_FALSE(spec->metric().loss_name.empty()) << type;
    EXPECT_EQ(spec->counted(), spec->input() == InputKind::images ? "images" : "tokens") << type;
    const bool says_file = spec->describe().find("no.file") != std::string::npos;
    EXPECT_TRUE(says_file || spec->endless()) << type << ": " << spec->describe();
    EXPECT_EQ(spec->describe().find("there/"), std::string::npos) << "the card shows no path of this machine";
  }
}

TEST(TaskRegistry, WordsFilesAndFoldersBecomeData) {
  std::set<std::string> different;
  for (const std::string& word : made_words()) {
    EXPECT_TRUE(different.insert(word).second) << word;
    const auto table = find_data(word);
    ASSERT_TRUE(table.has_value()) << word;
    const Shown shown = spec_of(*table)->show({.count = 1});
    EXPECT_NE(shown.text.find('\n'), std::string::npos) << word;
  }
  EXPECT_EQ(find_data("reverse")->at("task").as_string(), "reverse");
  EXPECT_EQ(find_data("listops")->at("type").as_string(), "listops");
  const test::TemporaryFolder folder;
  base::write_file_atomic(folder / "a.txt", "abc\n");
  EXPECT_EQ(find_data(folder / "a.txt")->at("type").as_string(), "text");
  EXPECT_EQ(find_data(folder / "a.txt")->at("train").as_string(), folder / "a.txt");
  data::make_class_folders(folder / "set", 4);
  const Node images = *find_data(folder / "set");
  EXPECT_EQ(images.at("type").as_string(), "images");
  EXPECT_EQ(images.at("format").as_string(), "folders");
  EXPECT_FALSE(find_data(folder / "nothing").has_value());
  base::write_file_atomic(folder / "t.csv", "id,remark\n1,good\n");
  EXPECT_THROW(find_data(folder / "t.csv"), base::InputError);
  EXPECT_EQ(find_data(folder / "t.csv", "text")->at("train").as_string(), folder / "t.csv") << "as it stands";
}

TEST(TaskRegistry, WhatATaskIsAskedOfItsSpec) {
  const auto bytes = spec_of(Node::table({{"type", "text"}, {"train", "a"}, {"unit", "bytes"}}));
  ASSERT_NE(bytes->text(), nullptr);
  EXPECT_EQ(bytes->metric().short_name, "bits/byte");
  EXPECT_FALSE(bytes->metric().higher_is_better);
  EXPECT_FALSE(bytes->chance(model_of()).has_value());
  EXPECT_TRUE(bytes->completes(model_of()));
  EXPECT_FALSE(bytes->completes(model_of(Node::table({{"embedding", Node::table({{"vocab_size", 256}})}}))));
  test::expect_error<base::InputError>([&] { bytes->images(model_of()); }, {"[data] of type \"text\" has no images"});

  const auto copy = spec_of(Node::table({{"type", "algorithmic"}, {"num_symbols", 4}, {"num_segments", 3}}));
  EXPECT_EQ(copy->text(), nullptr);
  EXPECT_TRUE(copy->endless());
  EXPECT_EQ(copy->segment_size(), 4);
  EXPECT_DOUBLE_EQ(copy->chance(model_of()).value(), 0.1);
  EXPECT_EQ(copy->metric().loss_name, "nats a symbol");

  const auto lists = spec_of(Node::table({{"type", "listops"}}));
  EXPECT_EQ(lists->shape(model_of()).num_classes, 10);
  EXPECT_EQ(lists->metric().loss_name, "nats an expression");
  EXPECT_FALSE(lists->endless());

  const auto images = spec_of(Node::table({{"type", "images"}, {"train", "a"}}));
  Node vit = Node::table({{"backbone", Node::table({{"type", "vit"}, {"image_size", Node::array({32, 48})}})}});
  vit.set("head", Node::table({{"type", "classification"}}));
  EXPECT_EQ(images->images(model_of(vit)).image_size, (std::vector<int64_t>{32, 48}));
  EXPECT_FALSE(images->chance(model_of(vit)).has_value());
  EXPECT_TRUE(images->completes(model_of(vit)));
  vit.set("head", Node::table({{"type", "classification"}, {"num_classes", 4}}));
  EXPECT_DOUBLE_EQ(images->chance(model_of(vit)).value(), 0.25);
  EXPECT_FALSE(images->completes(model_of(vit)));
  EXPECT_TRUE(images->model_files(model_of(vit)).contains("images.json"));
  const auto large = spec_of(
      Node::table({{"type", "images"}, {"train", "a"}, {"image_size", Node::array({8192, 2560})}}));
  const Node patches = base::parse_json(
      R"({"type": "vit", "image_size": [512, 512], "patch_size": 512, "dim": 8, "num_layers": 1, "num_heads": 1})",
      "test");
  vit.set("backbone", patches);
  test::expect_error<base::InputError>(
      [&] { large->check_model(models::ImageModel(model_of(vit), 0, at::kFloat), {}); },
      {"data.image_size", "at most 16777216 pixels"});
}

TEST(TaskRegistry, ATextIsCountedInTheTokensOfAStep) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i) + "\n";
  base::write_file_atomic(folder / "a.txt", text);
  const auto spec = spec_of(Node::table({{"type", "text"}, {"train", folder / "a.txt"}}));
  const models::ModelOptions model = model_of(Node::table({{"segment_size", 8}}));
  const LoadedTask loaded = spec->load(model, {.batch_size = 2, .segments_per_step = 3});
  EXPECT_EQ(loaded.tokens_per_row, 24);
  ASSERT_NE(loaded.tokenizer, nullptr);
  EXPECT_EQ(loaded.shape.vocabulary, loaded.tokenizer->size());
  EXPECT_EQ(loaded.task->metric(), "bits_per_character");
}

// A training keeps the best evaluation by the task, a study compares results by the specification.
TEST(TaskRegistry, ATaskAndItsSpecificationAgreeOnWhatIsBetter) {
  const test::TemporaryFolder folder;
  std::string text, pairs, labelled = "sentence\tlabel\n";
  for (int i = 0; i < 60; ++i) {
    text += "a b c d e f\n";
    pairs += fmt::format("a {}\tb {}\n", i, i);
    labelled += fmt::format("a {}\t{}\n", i, i % 2);
  }
  data::write_text(folder / "a.txt", text);
  data::write_text(folder / "pairs.tsv", pairs);
  data::write_text(folder / "labelled.tsv", labelled);
  data::write_text(folder / "words/vocab.txt",
                   "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n<extra_id_0>\n<extra_id_1>\n");
  data::make_class_folders(folder / "images");
  test::paint_objects(folder.path(), 4);
  const std::string painted = folder / "instances_painted.json";
  const auto table = [](const char* type, std::initializer_list<std::pair<const char*, Node>> more) {
    Node node = Node::table({{"type", type}});
    for (const auto& [key, value] : more) node.set(key, value);
    return node;
  };
  data::write_text(folder / "copy.tsv", spec_of(table("algorithmic", {}))->show({.count = 4}).text);
  const std::pair<const char*, Node> own = {"train", folder / "a.txt"}, words = {"tokenizer", folder / "words"},
                                     translated = {"train", folder / "pairs.tsv"};
  const std::vector<Node> tables = {
      table("text", {own}),
      table("text", {own, {"unit", "bytes"}}),
      table("text", {own, {"unit", "words"}}),
      table("text", {own, words}),
      table("algorithmic", {}),
      table("task_file", {{"train", folder / "copy.tsv"}}),
      table("listops", {{"train_samples", 4},
                        {"valid_samples", 2},
                        {"test_samples", 0},
                        {"max_depth", 3},
                        {"min_length", 3},
                        {"max_length", 40}}),
      table("text_classification", {{"train", folder / "labelled.tsv"}}),
      table("text_classification", {{"train", folder / "labelled.tsv"}, {"metric", "f1"}}),
      table("masked_text", {own, words}),
      table("span_corruption", {own, words}),
      table("images", {{"train", folder / "images"}, {"image_size", Node::array({8, 8})}}),
      table("detection", {{"train", painted}, {"valid", painted}}),
      table("pairs", {translated}),
      table("pairs", {translated, {"translated", 2}}),
      table("pairs", {translated, {"translated", 2}, {"metric", "exact_match"}})};
  const models::ModelOptions model = model_of(Node::table({{"segment_size", 8}})),
                             detector = base::read_options<models::ModelOptions>(
                                 base::parse_toml(test::small_detector("retinanet", false), "test"));
  std::set<std::string> seen;
  for (const Node& one : tables) {
    const auto spec = spec_of(one);
    const LoadedTask loaded = spec->load(spec->detects() ? detector : model, {.batch_size = 2});
    EXPECT_EQ(loaded.task->metric(), spec->metric().key()) << base::to_json(one, -1);
    EXPECT_EQ(loaded.task->lower_is_better(), !spec->metric().higher_is_better) << base::to_json(one, -1);
    seen.insert(spec->type());
  }
  EXPECT_EQ(seen.size(), TaskTypes::all().entries.names().size()) << "a type is not here";
}

}  // namespace
}  // namespace mnemo::tasks
