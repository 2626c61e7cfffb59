// Folders of published text models that lie: an error, and no memory beyond the size of their files and a megabyte.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"
#include "tests/support/memory_meter.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"
#include "text/open_tokenizer.h"
#include "weights/sharded.h"

namespace mnemo::bundle::hostile_folder_test {
namespace {

constexpr int64_t kSlack = int64_t{1} << 20;
using test::kTexts;
const std::vector<std::string> kFamilies = {"bert_cls", "bert_mlm", "roberta_cls", "deberta_v3_cls",
                                            "t5_v10",   "t5_v11",   "gpt2",        "llama",
                                            "llama3",   "qwen2",    "gpt_neox",    "marian"};

/// Memory that reading a folder may take: the size of its files and a megabyte.
int64_t affordable(const std::string& folder) {
  int64_t sum = kSlack;
  for (const auto& file : std::filesystem::directory_iterator(folder)) sum += static_cast<int64_t>(file.file_size());
  return sum;
}

/// The error of loading the folder, if there is one, which has to be an InputError; checks what it took.
std::optional<std::string> error_of(const std::string& folder, const std::string& what,
                                    const LoadModelOptions& options = {}) {
  const int64_t most = affordable(folder);
  const test::MemoryMeter meter;
  try {
    load_any(folder, options);
  } catch (const base::InputError& error) {
    EXPECT_LE(meter.peak(), most) << what << ": " << error.what();
    return error.what();
  }
  return std::nullopt;
}

// Without the fsync of an atomic write, which would be slow for hundreds of files.
void write_plainly(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct Copy {
  explicit Copy(const std::string& of) : config(weights::parse_model_config(read_model_config(kTexts + of), of)) {
    std::filesystem::copy(kTexts + of + "/model.safetensors", folder / "model.safetensors");
    write();
  }
  void write() const { write_plainly(folder / "config.json", base::to_json(config)); }
  test::TemporaryFolder folder;
  base::Node config;
};

// Every number of every family's config.json becomes one that the file does not hold, also of memories added to it.
TEST(HostileFolder, NumbersOfConfigsTakeNoMemory) {
  for (const std::string& family : kFamilies) {
    const Copy original(family);
    ASSERT_FALSE(error_of(original.folder.path(), family)) << family;
    int refused = 0;
    for (const auto& [key, value] : original.config.members()) {
      if (!value.is_int()) continue;
      for (const int64_t wrong : {int64_t{-1}, int64_t{0}, int64_t{1} << 15, int64_t{1} << 20, int64_t{1} << 31,
                                  int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
        Copy copy(family);
        copy.config.set(key, wrong);
        copy.write();
        const std::string what = fmt::format("{}: {} = {}", family, key, wrong);
        refused += error_of(copy.folder.path(), what) ? 1 : 0;
        LoadModelOptions with_memory;
        with_memory.change = [](base::Node& model) {
          model.set("memory", base::Node::array({base::Node::table({{"type", "grc"}, {"cache_len", 4}})}));
        };
        error_of(copy.folder.path(), what + " with memory", with_memory);
      }
    }
    EXPECT_GT(refused, 20) << family;
  }
}

// As many parameters as the file holds numbers, in other shapes.
TEST(HostileFolder, ShapesAreComparedBeforeAModelIsMade) {
  Copy copy("gpt2");
  weights::TensorFile file = weights::read_safetensors(kTexts + "gpt2/model.safetensors");
  constexpr int64_t kWords = 80'000;
  for (auto& [name, tensor] : file.tensors)
    if (name == "transformer.wte.weight") tensor = at::zeros({kWords, tensor.size(1)});
  weights::write_safetensors(copy.folder / "model.safetensors", file.tensors);
  copy.config.set("vocab_size", kWords);
  copy.write();
  EXPECT_EQ(error_of(copy.folder.path(), "right"), std::nullopt);
  copy.config.set("vocab_size", kWords - 1);
  copy.write();
  const auto error = error_of(copy.folder.path(), "one word less");
  ASSERT_TRUE(error);
  EXPECT_NE(error->find("'transformer.wte.weight' expected shape [79999,"), std::string::npos) << *error;
}

TEST(HostileFolder, ManyLabelsTakeNoMemory) {
  Copy copy("bert_cls");
  base::Node labels = base::Node::table();
  for (int i = 0; i < 60'000; ++i) labels.set(std::to_string(i), "x");
  copy.config.set("id2label", labels);
  copy.write();
  const auto error = error_of(copy.folder.path(), "labels");
  ASSERT_TRUE(error);
  EXPECT_NE(error->find("config.json:"), std::string::npos) << *error;
  EXPECT_NE(error->find("values"), std::string::npos) << *error;
}

TEST(HostileFolder, ManyValuesTakeNoMemory) {
  for (const char* value : {"1", "{}", "\"x\""}) {
    Copy copy("llama");
    std::string config = base::to_json(copy.config, -1), list, table;
    config.pop_back();
    for (int i = 0; i < 200'000; ++i) {
      list += fmt::format("{}{}", i == 0 ? "" : ",", value);
      table += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", i, value);
    }
    for (const std::string& further : {"[" + list + "]", "{" + table + "}"}) {
      write_plainly(copy.folder / "config.json", config + ", \"x\": " + further + "}");
      const auto error = error_of(copy.folder.path(), value);
      ASSERT_TRUE(error) << value;
      EXPECT_NE(error->find("values"), std::string::npos) << *error;
    }
  }
}

/// The error of opening a tokenizer of these files; checks what it took.
std::string tokenizer_error(const std::map<std::string, std::string>& files) {
  const test::TemporaryFolder folder;
  for (const auto& [name, text] : files) write_plainly(folder / name, text);
  const int64_t most = affordable(folder.path());
  const test::MemoryMeter meter;
  try {
    text::open_tokenizer(folder.path());
  } catch (const base::InputError& error) {
    EXPECT_LE(meter.peak(), most) << error.what();
    return error.what();
  }
  return "none";
}

std::string repeated(const std::string& part, int times) {
  std::string all = part;
  for (int i = 1; i < times; ++i) all += "," + part;
  return all;
}

TEST(HostileFolder, TokenizersTakeNoMemory) {
  const std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2})";
  const auto json = [&](const std::string& model, const std::string& rest) {
    return std::map<std::string, std::string>{{"tokenizer.json", "{\"model\": {" + model + "}" + rest + "}"}};
  };
  const std::string vocab = "\"vocab\": " + vocabulary;
  const auto expect = [](const std::string& found, const std::string& wanted) {
    EXPECT_NE(found.find(wanted), std::string::npos) << found;
  };
  constexpr int kMany = 500'000;
  expect(tokenizer_error(json(vocab, ", \"x\": [" + repeated("1", kMany) + "]")), "values");
  expect(tokenizer_error(json(vocab, ", \"added_tokens\": [" + repeated("{}", kMany) + "]")), "expected an id");
  for (const char* merge : {"\"a b\"", "[\"a\",\"b\"]", "\"x y\""}) {
    const std::string merges = "\"merges\": [" + repeated(merge, kMany) + "]";
    expect(tokenizer_error(json(vocab + ", " + merges, "")), "expected at most 1 merges");
    expect(tokenizer_error(json(merges + ", " + vocab, "")), "expected at most 1 merges");
  }
  std::string lines, deep;
  for (int i = 0; i < kMany; ++i) lines += "a b\n";
  for (int i = 0; i < kMany; ++i) deep += "{\"a\":";
  expect(tokenizer_error({{"vocab.json", vocabulary}, {"merges.txt", lines}}), "expected at most 1 merges");
  expect(tokenizer_error(json("\"vocab\": " + deep, "")), "found an object");
  expect(tokenizer_error({{"vocab.txt", "[UNK]\n"}, {"tokenizer_config.json", deep}}), "nested");
}

/// A folder with its tensors in two files.
struct Shards {
  explicit Shards(const std::string& of) : copy(of) {
    const weights::TensorFile whole = weights::read_safetensors(copy.folder / "model.safetensors");
    weights::NamedTensors parts[2];
    map = base::Node::table();
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      parts[i % 2].push_back(whole.tensors[i]);
      map.set(whole.tensors[i].first, fmt::format("part-{}.safetensors", i % 2));
    }
    for (int i = 0; i < 2; ++i)
      weights::write_safetensors(copy.folder / fmt::format("part-{}.safetensors", i), parts[i]);
    std::filesystem::remove(copy.folder / "model.safetensors");
    write();
  }
  void write() const {
    write_plainly(copy.folder / weights::kIndexFile, base::to_json(base::Node::table({{"weight_map", map}})));
  }
  std::string folder() const { return copy.folder.path(); }
  Copy copy;
  base::Node map;
};

TEST(HostileFolder, TruncatedShardsAreErrors) {
  const Shards whole("llama");
  ASSERT_FALSE(error_of(whole.folder(), "whole"));
  const std::string part = whole.copy.folder / "part-1.safetensors";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(part));
  for (int64_t length = size - 1; length >= 0; length -= 1 + size / 40) {
    std::filesystem::resize_file(part, static_cast<size_t>(length));
    const auto error = error_of(whole.folder(), fmt::format("cut to {}", length));
    ASSERT_TRUE(error) << length;
    EXPECT_NE(error->find("part-1.safetensors"), std::string::npos) << *error;
  }
}

TEST(HostileFolder, ATensorIsInOneFile) {
  const Shards shards("llama");
  const std::string both = shards.copy.folder / "part-0.safetensors", name = shards.map.members().begin()->key;
  weights::TensorFile other = weights::read_safetensors(shards.copy.folder / "part-1.safetensors");
  other.tensors.emplace_back(name, weights::read_safetensors(both).tensors.front().second);
  weights::write_safetensors(shards.copy.folder / "part-1.safetensors", other.tensors);
  std::string map = base::to_json(shards.map, -1);
  map.pop_back();
  write_plainly(shards.copy.folder / weights::kIndexFile,
                fmt::format("{{\"weight_map\": {}, \"{}\": \"part-1.safetensors\"}}}}", map, name));
  const auto error = error_of(shards.folder(), "a tensor twice");
  ASSERT_TRUE(error);
  EXPECT_NE(error->find(fmt::format("the tensor '{}' appears twice", name)), std::string::npos) << *error;
}

TEST(HostileFolder, IndexesOfFurtherTensorsTakeNoMemory) {
  Shards shards("llama");
  std::string map = base::to_json(shards.map, -1);
  map.pop_back();
  for (int i = 0; i < 200'000; ++i) map += fmt::format(", \"tensor.{}\": \"part-{}.safetensors\"", i, i % 2);
  write_plainly(shards.copy.folder / weights::kIndexFile,
                "{\"metadata\": {\"a\": [1, {}]}, \"weight_map\": " + map + "}}");
  const auto error = error_of(shards.folder(), "further tensors");
  ASSERT_TRUE(error);
  EXPECT_NE(error->find("tensors, as its files can hold"), std::string::npos) << *error;
}

TEST(HostileFolder, ManyLayersTakeNoMemory) {
  for (const std::string& family : kFamilies) {
    Copy copy(family);
    const base::Node original = copy.config;
    for (const auto& [key, value] : original.members()) {
      if (key.find("layers") != std::string::npos || key == "n_layer") copy.config.set(key, 1024);
    }
    copy.write();
    EXPECT_TRUE(error_of(copy.folder.path(), family)) << family;
  }
}

TEST(HostileFolder, IndexesThatLeaveTheFolderAreErrors) {
  const std::string tensor = "model.norm.weight";
  for (const char* outside : {"../secret.safetensors", "/etc/passwd", "..", ".", "", "a/../b.safetensors", "a\\..\\b",
                              "part-0.safetensors/", ".hidden"}) {
    Shards shards("llama");
    shards.map.set(tensor, outside);
    shards.write();
    ASSERT_TRUE(error_of(shards.folder(), outside)) << outside;
  }
  Shards many("llama");
  for (int i = 0; i < 5'000; ++i) many.map.set(fmt::format("tensor.{}", i), fmt::format("part-{}.safetensors", i));
  many.write();
  const auto error = error_of(many.folder(), "many files");
  ASSERT_TRUE(error);
  EXPECT_NE(error->find("files"), std::string::npos) << *error;
}

}  // namespace
}  // namespace mnemo::bundle::hostile_folder_test
