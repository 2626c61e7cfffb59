#include "recipes/recipe.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/synonyms.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "text/open_tokenizer.h"

namespace mnemo::recipes {
namespace {

class RecipeFiles : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }
  std::string error_of(const std::string& path, const std::vector<std::string>& set = {}) {
    try {
      RecipeFile::read(path, set);
    } catch (const base::InputError& error) {
      return error.what();
    }
    return "no error";
  }
  test::TemporaryFolder folder_;
};

const char* kStudies = R"(
[data]
train = "a.txt"
[model]
segment_size = 8
backbone.attention = { type = "relative", rel_shift = "faithful" }
[train]
steps = 100
[[study]]
name = "Text"
train.steps = 20
[[study.variant]]
name = "none"
[[study.variant]]
name = "cache"
model.memory = [{ type = "segment_cache", mem_len = 5 }]
model.backbone.attention = { type = "softmax" }
train.batch_size = 3
[[study]]
name = "Copy"
data = { type = "algorithmic", num_symbols = 6 }
[[study.variant]]
name = "none"
[[study.variant]]
name = "rmt"
model.memory = [{ type = "recurrent_tokens" }]
)";

TEST_F(RecipeFiles, DefaultsAreFilledIn) {
  const RecipeFile file = RecipeFile::read(write("a.toml", "data.train = \"x.txt\"\n"));
  const Recipe recipe = read_recipe(file.recipe());
  EXPECT_NE(recipe.task()->text(), nullptr);
  EXPECT_EQ(recipe.data.at("unit").as_string(), "characters");
  EXPECT_EQ(recipe.train.steps, train::TrainOptions().steps);
  EXPECT_TRUE(file.studies().empty());
}

TEST_F(RecipeFiles, VariantsGoOnTopOfStudiesOnTopOfTheFile) {
  const RecipeFile file = RecipeFile::read(write("a.toml", kStudies));
  ASSERT_EQ(file.studies().size(), 2u);
  const Recipe cache = read_recipe(file.recipe("cache"));
  EXPECT_EQ(cache.train.steps, 20);
  EXPECT_EQ(cache.train.batch_size, 3);
  EXPECT_EQ(cache.model.segment_size, 8);
  ASSERT_EQ(cache.model.memory.size(), 1u);
  EXPECT_EQ(cache.model.memory[0].table().at("mem_len").as_int(), 5);
  EXPECT_EQ(cache.model.backbone.stack().attention.table().at("type").as_string(), "softmax");
  EXPECT_FALSE(cache.model.backbone.stack().attention.table().contains("rel_shift"));
  const Recipe none = read_recipe(file.recipe("Text/none"));
  EXPECT_EQ(none.model.backbone.stack().attention.table().at("rel_shift").as_string(), "faithful");
  const Recipe rmt = read_recipe(file.recipe("rmt"));
  EXPECT_EQ(rmt.train.steps, 100);
  EXPECT_EQ(rmt.task()->text(), nullptr);
  EXPECT_FALSE(rmt.data.contains("train"));
}

TEST_F(RecipeFiles, TheCommandLineWins) {
  const RecipeFile file = RecipeFile::read(write("a.toml", kStudies),
                                           {"train.steps=7", "study[0].variant[1].model.memory[0].mem_len=9"});
  EXPECT_EQ(read_recipe(file.recipe("cache")).train.steps, 7);
  EXPECT_EQ(read_recipe(file.recipe("rmt")).train.steps, 7);
  EXPECT_EQ(read_recipe(file.recipe("cache")).model.memory[0].table().at("mem_len").as_int(), 9);
}

TEST_F(RecipeFiles, PathsStartWhereTheyWereWritten) {
  const std::string path = write("a.toml", "data.train = \"x.txt\"\n");
  const std::string folder = std::filesystem::absolute(path).parent_path().string();
  EXPECT_EQ(read_recipe(RecipeFile::read(path).recipe()).data.at("train").as_string(), folder + "/x.txt");
  EXPECT_EQ(read_recipe(RecipeFile::read(path, {"data.train=y.txt"}).recipe()).data.at("train").as_string(),
            (std::filesystem::current_path() / "y.txt").string());
  const std::string with_tokenizer = write("b.toml", "data.train = \"x.txt\"\ndata.tokenizer = \"models/bert\"\n");
  EXPECT_EQ(RecipeFile::read(with_tokenizer).recipe().at("data").at("tokenizer").as_string(), folder + "/models/bert");
  EXPECT_EQ(RecipeFile::read(with_tokenizer, {"data.tokenizer=t5"}).recipe().at("data").at("tokenizer").as_string(),
            (std::filesystem::current_path() / "t5").string());
}

TEST_F(RecipeFiles, ARecipeOnTopOfAnother) {
  write("under.toml", kStudies);
  const RecipeFile file = RecipeFile::read(
      write("over.toml", "base = \"under.toml\"\nname = \"short\"\nset = [\"study[1].train.steps=3\"]\n"));
  EXPECT_EQ(file.name(), "short");
  EXPECT_EQ(read_recipe(file.recipe("rmt")).train.steps, 3);
  EXPECT_EQ(read_recipe(file.recipe("cache")).train.steps, 20);
  EXPECT_NE(error_of(write("self.toml", "base = \"self.toml\"\n")).find("cycle"), std::string::npos);
}

TEST_F(RecipeFiles, StepsOfSeveralSegmentsAreOfTextsAndDocuments) {
  for (const char* data : {"data.type=listops", "data={type=\"algorithmic\", task=\"copy\"}",
                           "data={type=\"text_classification\", train=\"x.tsv\"}"}) {
    const std::string error = error_of(write("a.toml", ""), {data, "train.segments_per_step=2"});
    EXPECT_NE(error.find("'train.segments_per_step'"), std::string::npos) << error;
    EXPECT_NE(error.find("reads whole samples; expected 1"), std::string::npos) << error;
  }
  const RecipeFile text = RecipeFile::read(write("a.toml", "data.train = \"x.txt\"\n"), {"train.segments_per_step=2"});
  EXPECT_EQ(read_recipe(text.recipe()).train.segments_per_step, 2);
}

TEST_F(RecipeFiles, MistakesNameFileLineAndNearestKey) {
  EXPECT_NE(error_of(write("a.toml", "[train]\nstep = 3\n"))
                .find("a.toml:2: unknown key 'train.step'; did you mean 'steps'?"),
            std::string::npos)
      << error_of(write("a.toml", "[train]\nstep = 3\n"));
  const std::string variant = "[[study]]\nname = \"x\"\n[[study.variant]]\nname = \"y\"\nmodell.segment_size = 3\n";
  EXPECT_NE(error_of(write("a.toml", variant))
                .find("a.toml:5: unknown key 'study[0].variant[0].modell'; did you mean 'model'?"),
            std::string::npos)
      << error_of(write("a.toml", variant));
  EXPECT_NE(error_of(write("a.toml", "[[study]]\nname = \"x\"\n")).find("key 'variant' is missing"), std::string::npos);
  EXPECT_NE(error_of(write("a.toml", "[[study]]\n[[study.variant]]\nname = \"y\"\n")).find("key 'name' is missing"),
            std::string::npos);
  EXPECT_NE(error_of(write("a.toml", "study = 3\n")).find("expected a non-empty list of tables"), std::string::npos);
  EXPECT_NE(error_of(write("a.toml", "")).find("no error"), std::string::npos);
  EXPECT_NE(error_of(write("a.toml", ""), {"train.stepz=3"}).find("did you mean 'steps'"), std::string::npos);
  for (const auto& [key, names] :
       {std::pair("train.precision", "expected \"float32\" | \"bf16\""),
        std::pair("train.recompute", "expected \"none\" | \"segment\" | \"auto\" | \"layer\""),
        std::pair("train.bptt", "expected \"sliding\" | \"chunked\""),
        std::pair("data.unit", "expected \"bytes\" | \"characters\" | \"words\""),
        std::pair("data.reset", "expected \"documents\" | \"segments\"")}) {
    const std::string error = error_of(write("a.toml", ""), {key + std::string("=fp8")});
    for (const char* part : {key, names, "fp8"}) EXPECT_NE(error.find(part), std::string::npos) << error;
  }
}

TEST_F(RecipeFiles, AStudyNamesTheMetricItCompares) {
  const auto study = [&](const std::string& metric) {
    return write("metric.toml",
                 "[data]\ntype = \"algorithmic\"\ntask = \"copy\"\n[[study]]\nname = \"x\"\nmetric = \"" + metric +
                     "\"\n[[study.variant]]\nname = \"y\"\n");
  };
  EXPECT_EQ(RecipeFile::read(study("result_accuracy")).studies()[0].metric, "result_accuracy");
  EXPECT_EQ(RecipeFile::read(study("")).studies()[0].metric, "");
  for (const char* metric : {"top5_accuracy", "train_accuracy", "train_nll"}) {
    EXPECT_EQ(RecipeFile::read(study(metric), {"data={type=\"images\", train=\"photos\"}"}).studies()[0].metric,
              metric);
  }
  const std::string error = error_of(study("perplexity"));
  for (const char* part :
       {"metric.toml:6: 'study[0].metric'", "variant 'y'", "accuracy, result_accuracy", "\"perplexity\""})
    EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
}

TEST_F(RecipeFiles, VariantsAreChosenByName) {
  const RecipeFile file = RecipeFile::read(write("a.toml", kStudies));
  EXPECT_THROW(file.recipe(), base::InputError);
  EXPECT_THROW(file.recipe("cash"), base::InputError);
  const auto error = [&](const std::optional<std::string>& variant) {
    try {
      file.recipe(variant);
    } catch (const base::InputError& found) {
      return std::string(found.what());
    }
    return std::string();
  };
  EXPECT_NE(error("none").find("2 studies have a variant 'none'; choose one with --variant: Text/none; Copy/none"),
            std::string::npos)
      << error("none");
  EXPECT_NE(error({}).find("choose one with --variant: Text/none; Text/cache; Copy/none; Copy/rmt"), std::string::npos);
  EXPECT_EQ(read_recipe(file.recipe("Copy/none")).task()->text(), nullptr);
  EXPECT_THROW(RecipeFile::read(write("b.toml", "")).recipe("cache"), base::InputError);
}

TEST_F(RecipeFiles, WhatIsSetForOneVariantNeedNotFitTheOthers) {
  const std::string path = write("a.toml", kStudies);
  const std::vector<std::string> set = {"model.memory[0].mem_len=7"};  // the first variant has no memory
  EXPECT_NE(error_of(path, set).find("model.memory[0].mem_len=7"), std::string::npos) << error_of(path, set);
  for (const std::string variant : {"cache", "Text/cache"}) {
    const RecipeFile file = RecipeFile::read(path, set, variant);
    EXPECT_EQ(file.recipe(variant).at("model").at("memory").items()[0].at("mem_len").as_int(), 7);
  }
  EXPECT_THROW(RecipeFile::read(path, set, "Text/none"), base::InputError);
}

TEST(RecipeHelp, NamesEveryKindOfKey) {
  const std::string help = recipe_help(recipe_docs(), 0);
  for (const char* key :
       {"data.train", "data.task", "model.backbone.num_layers", "model.memory[].mem_len", "train.steps",
        "train.optimiser.lr", "generate.sampling.temperature", "study[].variant[].name", "base"}) {
    EXPECT_NE(help.find(key), std::string::npos) << key;
  }
  EXPECT_NE(base::option_markdown(recipe_docs()).find("| train.steps | integer | 1000 |"), std::string::npos);
  for (const char* word : {"memory", "gate"})
    EXPECT_EQ(recipe_help(find_recipe_docs({word}), 80).find("\n\n\n"), std::string::npos) << word;
}

TEST(RecipeHelp, SearchesKeysAndMeanings) {
  const auto keys = [](const std::vector<std::string>& words) {
    std::string text;
    for (const base::OptionDoc& doc : find_recipe_docs(words)) text += doc.path + "\n";
    return text;
  };
  EXPECT_NE(keys({"MEM_LEN"}).find("model.memory[].mem_len\n"), std::string::npos);
  EXPECT_EQ(keys({"MEM_LEN"}).find("train.steps"), std::string::npos);
  EXPECT_EQ(keys({"nucleus"}), "generate.sampling.top_p\n") << "by meaning";
  EXPECT_NE(keys({"grc"}).find("model.memory[].cache_len\n"), std::string::npos) << "by the type it belongs to";
  EXPECT_EQ(keys({"sampling.", "logits", "penal"}).find("top_k"), std::string::npos) << "all words";
  EXPECT_EQ(keys({}).size(), keys({""}).size());
  EXPECT_TRUE(keys({"lr"}).starts_with("train.optimiser.lr\n")) << keys({"lr"});
  EXPECT_EQ(keys({"lr"}).find("lsh"), std::string::npos) << "only words that begin so";
  EXPECT_TRUE(keys({"gradient_accumulation_steps"}).starts_with("train.accumulate\n"));
  try {
    keys({"mem_lem"});
    FAIL() << "no error";
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("'mem_lem'; did you mean 'mem_len'?"), std::string::npos) << error.what();
  }
}

TEST_F(RecipeFiles, NamesOfMethodsLeadToTheirTypes) {
  const std::string path = write("r.toml", "[data]\ntrain = \"a.txt\"\n");
  const auto refused = [&](const std::string& assignment, const std::string& said) {
    test::expect_error<base::InputError>([&] { read_recipe_file(path, {assignment}); }, {said});
  };
  refused("model.rmt=4", "unknown key 'model.rmt'; 'recurrent_tokens' is a type of 'model.memory' (RMT: ");
  refused("model.grc=4", "unknown key 'model.grc'; 'grc' is a type of 'model.memory' (");
  refused("train.dropout=0.1", "unknown key 'train.dropout'; did you mean 'model.backbone.dropout'?");
  refused("model.nothing=4", "unknown key 'model.nothing'; known: ");
  const auto memory = [](const char* type) {
    models::ModelOptions::memory_types().read(base::Node::table({{"type", type}}));
  };
  test::expect_error<base::InputError>([&] { memory("rmt"); },
                                       {"unknown memory 'rmt'; did you mean 'recurrent_tokens' (RMT: "});
  test::expect_error<base::InputError>([&] { memory("grcc"); }, {"unknown memory 'grcc'; did you mean 'grc'?"});
  EXPECT_FALSE(find_recipe_docs({"transformer_xl"}).empty()) << "Transformer-XL";
}

/// The tokenizer of a published model is the vocabulary, whatever one the recipe describes.
TEST_F(RecipeFiles, TheTokenizerOfAPublishedModelWins) {
  const std::string gpt2 = MNEMO_SOURCE_DIR "/tests/golden/data/text_import/gpt2", folder = folder_.path() + "/gpt2";
  std::filesystem::copy(gpt2, folder);
  const std::string path = write("r.toml", "[data]\ntrain = \"a.txt\"\nunit = \"words\"\nmax_vocabulary = 100\n"),
                    from = "model.from=" + folder;
  EXPECT_FALSE(text::has_tokenizer(folder));
  EXPECT_EQ(read_recipe_file(path, {from}).data.at("unit").as_string(), "words") << "none to take";
  base::write_file_atomic(folder + "/vocab.json", "{\"a\": 0}");
  base::write_file_atomic(folder + "/merges.txt", "#version: 0.2\n");
  const Recipe own = read_recipe_file(path, {from});
  EXPECT_EQ(own.data.at("tokenizer").as_string(), folder);
  EXPECT_EQ(own.data.at("max_vocabulary").as_int(), 0);
  EXPECT_EQ(read_recipe_file(path, {from, "data.unit=characters"}).data.at("unit").as_string(), "characters")
      << "as said";
}

TEST_F(RecipeFiles, AModelSetOnTheCommandLineWinsOverAPreset) {
  const std::string from = std::string("model.from=") + MNEMO_SOURCE_DIR "/tests/golden/data/text_import/gpt2",
                    path = write("r.toml",
                                 "[data]\ntrain = \"a.txt\"\nunit = \"words\"\n[model]\npreset = \"rmt_wt103\"\n"
                                 "segment_size = 4\n[model.backbone]\ndim = 6\n");
  const models::ModelOptions model = read_recipe_file(path, {from}).model;
  EXPECT_EQ(model.segment_size, 4);
  EXPECT_TRUE(model.memory.empty());
  EXPECT_NE(model.backbone.stack().dim, 6);
  test::expect_error<base::InputError>(
      [&] {
        read_recipe_file(path, {from, "model.preset=rmt_wt103"});
      },
      {"'model.from' and 'model.preset' are mutually exclusive; leave one out"});
}

TEST(RecipeHelp, EverySynonymLeadsToAKeyOfRecipes) {
  std::set<std::string> keys;
  for (const base::OptionDoc& doc : recipe_docs()) {
    for (size_t end = 0; end != std::string::npos; end = doc.path.find('.', end + 1))
      keys.insert(doc.path.substr(0, end));
    keys.insert(doc.path);
  }
  for (const auto& [name, key] : base::key_synonyms())
    EXPECT_TRUE(key.starts_with("--") || keys.contains(std::string(key))) << name << ": " << key;
}

TEST_F(RecipeFiles, KeysCanBeUnsetAndSpelledInTwoWays) {
  const std::string path = write("r.toml", R"(
[data]
train = "a.txt"
unit = "words"
[model]
memory = [{ type = "segment_cache", mem_len = 5 }]
[train]
steps = 7
clip_norm = 2.0
optimizer = { type = "adamw", lr = 3e-4 }
)");
  const Recipe plain = read_recipe_file(path);
  EXPECT_EQ(plain.train.optimiser.at("lr").as_double(), 3e-4);
  const Recipe unset = read_recipe_file(path, {"data.unit=unset", "model.memory=unset", "train.steps=unset",
                                               "train.clip_norm=unset", "train.optimizer.lr=1e-3", "data.train=unset"});
  EXPECT_EQ(unset.data.at("unit").as_string(), "characters");
  EXPECT_EQ(unset.data.at("train").as_string(), "");
  EXPECT_TRUE(unset.model.memory.empty());
  EXPECT_EQ(unset.train.steps, train::TrainOptions().steps);
  EXPECT_EQ(unset.train.clip_norm, std::nullopt);
  EXPECT_EQ(unset.train.optimiser.at("lr").as_double(), 1e-3);
}

TEST_F(RecipeFiles, ATokenizerOfTheCommandLineWinsOverTheRecipesVocabulary) {
  const std::string path = write("r.toml", R"(
[data]
type = "pairs"
train = "a.tsv"
unit = "unigram"
max_vocabulary = 4000
[model]
backbone.type = "encoder_decoder"
)");
  const base::Node data = RecipeFile::read(path, {"data.tokenizer=" + folder_.path()}).recipe().at("data");
  EXPECT_EQ(data.at("tokenizer").as_string(), folder_.path());
  EXPECT_EQ(data.at("max_vocabulary").as_int(), 0);
  EXPECT_NE(error_of(path, {"data.tokenizer=x", "data.unit=bpe"}).find("x' is the vocabulary"), std::string::npos)
      << error_of(path, {"data.tokenizer=x", "data.unit=bpe"});
}

TEST_F(RecipeFiles, HelpHasNoKeyWithoutAName) {
  const std::string help = recipe_help(recipe_docs(), 0);
  EXPECT_NE(help.find("with type = \"luna\""), std::string::npos);
  EXPECT_EQ(help.find("()"), std::string::npos);
  for (const base::OptionDoc& doc : recipe_docs()) EXPECT_FALSE(doc.path.ends_with(".")) << doc.group;
}

TEST_F(RecipeFiles, NamesOfVariantsAreListedInQuotes) {
  const RecipeFile file = RecipeFile::read(write("a.toml", kStudies));
  try {
    file.recipe("something else altogether");
    FAIL() << "no error";
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("; known: 'Text/none', 'Text/cache', 'Copy/none', 'Copy/rmt'"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace mnemo::recipes
