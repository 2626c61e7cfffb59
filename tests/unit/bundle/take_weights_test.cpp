// Starting from a model folder takes its weights, classes and settings of its search.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/class_names.h"
#include "bundle/convert.h"
#include "bundle/load.h"
#include "bundle/model_folder.h"
#include "bundle/take_weights.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"
#include "weights/model_tensors.h"
#include "weights/safetensors.h"

namespace mnemo::bundle {
namespace {

using test::expect_error;
using test::kTexts;

const std::vector<std::string> kClassifierNames = {"head.classifier.weight", "head.classifier.bias"};

/// BERT with a head for four classes, of these names.
std::string with_class_names(const test::TemporaryFolder& folder, const std::vector<std::string>& names) {
  const std::string copy = folder / "bert";
  std::filesystem::create_directories(copy);
  std::filesystem::copy(kTexts + "bert_cls/model.safetensors", copy + "/model.safetensors");
  base::Node config = base::parse_json(base::read_file(kTexts + "bert_cls/config.json", 1 << 20), "config.json"),
             labels = base::Node::table(), numbers = base::Node::table();
  for (size_t i = 0; i < names.size(); ++i) {
    labels.set(std::to_string(i), names[i]);
    numbers.set(names[i], static_cast<int64_t>(i));
  }
  config.set("id2label", labels);
  config.set("label2id", numbers);
  base::write_file_atomic(copy + "/config.json", base::to_json(config));
  return copy;
}

std::unique_ptr<models::Model> bert_of_classes(int64_t classes) {
  models::ModelOptions options = load_any(kTexts + "bert_cls").model->options();
  options.head.set("num_classes", classes);
  return models::build(models::read_model_options(base::write_options(options)), 1);
}

TEST(TakeWeights, AClassifierOfAnotherNumberOfClassesIsFresh) {
  const auto old = load_any(kTexts + "bert_cls").model;
  const auto model = bert_of_classes(2);
  const at::Tensor drawn = model->parameters().find(kClassifierNames[0]).detach().clone();
  const Taken taken = take_weights(kTexts + "bert_cls", *model, {"no", "yes"});
  EXPECT_EQ(taken.fresh, kClassifierNames);
  EXPECT_EQ(taken.note, "");
  EXPECT_TRUE(at::equal(model->parameters().find(kClassifierNames[0]), drawn));
  for (const auto& [name, tensor] : model->parameters().named()) {
    if (name.starts_with("head.classifier.")) continue;
    EXPECT_TRUE(at::equal(tensor, old->parameters().find(name))) << name;
  }
  // Any other layer of another shape is an error.
  models::ModelOptions wide = model->options();
  wide.backbone.stack().ffn_dim += 4;
  const auto other = models::build(models::read_model_options(base::write_options(wide)), 1);
  expect_error<base::InputError>([&] { take_weights(kTexts + "bert_cls", *other); }, {"ffn", "expected"});
}

/// A copy of a golden folder with other tensors.
std::string with_tensors(const test::TemporaryFolder& folder, const std::string& name,
                         const std::function<void(weights::NamedTensors&)>& change) {
  const std::string copy = folder / name;
  std::filesystem::create_directories(copy);
  std::filesystem::copy(kTexts + name + "/config.json", copy + "/config.json");
  weights::TensorFile file = weights::read_safetensors(kTexts + name + "/model.safetensors");
  change(file.tensors);
  weights::write_safetensors(copy + "/model.safetensors", file.tensors, file.metadata);
  return copy;
}

TEST(TakeWeights, AHeadWithAnOutputOfItsOwnIsAnotherModel) {
  const test::TemporaryFolder folder;
  const std::string embedding = "bert.embeddings.word_embeddings.weight", own = "cls.predictions.decoder.weight";
  const auto with_output = [&](double more) {
    return with_tensors(folder, "bert_mlm", [&](weights::NamedTensors& tensors) {
      for (const auto& [name, tensor] : tensors) {
        if (name != embedding) continue;
        tensors.emplace_back(own, tensor.add(more));
        break;
      }
    });
  };
  load_any(with_output(0.0));  // a copy
  std::filesystem::remove_all(folder / "bert_mlm");
  const std::string other = with_output(1.0);
  expect_error<base::InputError>([&] { load_any(other); }, {"output of its own", own, embedding});
}

// A GRC's parameters do not tell how many rows its cache has.
TEST(TakeWeights, ACacheOfAnotherSizeBeginsEmpty) {
  const test::TemporaryFolder folder;
  const auto with_cache = [](int64_t rows) {
    return models::build(
        models::read_model_options(base::parse_toml(
            fmt::format("segment_size = 4\nembedding.vocab_size = 7\nbackbone = {{ num_layers = 1, dim "
                        "= 8, num_heads = 2, ffn_dim = 8 }}\n[[memory]]\ntype = \"grc\"\ncache_len = {}",
                        rows),
            "test")),
        1);
  };
  const auto cache_of = [](const models::Model& model) { return model.initial_state(1).fields().front().second; };
  const auto stored = with_cache(4);
  stored->commit(stored->initial_state(1).map(
      [](const core::Field&, const at::Tensor& tensor) { return at::full_like(tensor, 3.0); }));
  ModelFolder content;
  content.config = base::to_json(base::write_options(stored->options()));
  content.weights.tensors = weights::model_tensors(*stored);
  write_model_folder(folder / "m", content);
  const auto same = with_cache(4), longer = with_cache(6);
  EXPECT_EQ(take_weights(folder / "m", *same).note, "");
  EXPECT_TRUE(at::equal(cache_of(*same), cache_of(*stored)));
  const Taken taken = take_weights(folder / "m", *longer);
  EXPECT_TRUE(taken.fresh.empty());
  EXPECT_TRUE(taken.note.starts_with("memories of another size there start empty: '")) << taken.note;
  EXPECT_TRUE(taken.note.ends_with("layers.0.attn.grc'")) << taken.note;
  EXPECT_EQ(cache_of(*longer).size(1), 6);
  EXPECT_EQ(cache_of(*longer).abs().max().item<float>(), 0.0f);
}

TEST(TakeWeights, QuantisedWeightsAreNotReadAsPlainOnes) {
  const test::TemporaryFolder folder;
  const std::string narrow = with_tensors(folder, "llama", [](weights::NamedTensors& tensors) {
    tensors.front().second = tensors.front().second.to(at::kFloat8_e4m3fn);
  });
  expect_error<base::InputError>([&] { load_any(narrow); }, {"model.safetensors", "Float8", "float32, bf16"});
  base::Node config = base::parse_json(base::read_file(narrow + "/config.json", 1 << 20), "config.json");
  config.set("quantization_config", base::Node::table({{"quant_method", "fp8"}}));
  base::write_file_atomic(narrow + "/config.json", base::to_json(config));
  expect_error<base::InputError>([&] { load_any(narrow); }, {"config.json", "'quantization_config'"});
}

TEST(TakeWeights, ClassesOfTheSameNamesTakeTheirRows) {
  const test::TemporaryFolder folder;
  const std::string published = with_class_names(folder, {"a", "b", "c", "d"}), ours = folder / "ours";
  convert({.model = published, .to = "mnemo", .out = ours});
  const auto old = load_any(published).model;
  const std::vector<int64_t> places = {3, 0, 2, 1};
  for (const std::string& from : {published, ours}) {
    const auto model = bert_of_classes(4);
    const Taken taken = take_weights(from, *model, {"d", "a", "c", "b"});
    EXPECT_NE(taken.note.find("are reordered"), std::string::npos) << taken.note;
    EXPECT_TRUE(taken.fresh.empty());
    for (const std::string& name : kClassifierNames)
      EXPECT_TRUE(at::equal(model->parameters().find(name),
                            old->parameters().find(name).index_select(0, at::tensor(places, at::kLong))))
          << from << ": " << name;
    EXPECT_EQ(take_weights(from, *model, {"a", "b", "c", "d"}).note, "");
    EXPECT_TRUE(at::equal(model->parameters().find(kClassifierNames[0]), old->parameters().find(kClassifierNames[0])));
  }
}

TEST(TakeWeights, ClassesOfOtherNamesKeepTheirRowsAndAreNamed) {
  const test::TemporaryFolder folder;
  const std::string published = with_class_names(folder, {"a", "b", "c", "d"});
  const auto old = load_any(published).model;
  const auto model = bert_of_classes(4);
  for (const std::vector<std::string>& classes :
       {std::vector<std::string>{"north", "east", "south", "west"}, {"d", "c", "b", "e"}, {"a", "a", "b", "c"}}) {
    const std::string note = take_weights(published, *model, classes).note;
    for (const char* part : {"other names", "'a', 'b', 'c', 'd'"})
      EXPECT_NE(note.find(part), std::string::npos) << note;
    EXPECT_NE(note.find("'" + classes[0] + "'"), std::string::npos) << note;
    EXPECT_TRUE(at::equal(model->parameters().find(kClassifierNames[0]), old->parameters().find(kClassifierNames[0])));
  }
  // LABEL_0 and so on are no names.
  EXPECT_EQ(take_weights(kTexts + "bert_cls", *model, {"a", "b", "c", "d"}).note, "");
}

base::Node search_settings_in(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  return base::parse_json(base::read_file(path, 1 << 20), path);
}

// Where its texts end; an encoder writes none.
TEST(TakeWeights, SettingsOfALanguageModelStayWithIt) {
  const std::string name = "generation_config.json";
  const auto taken = [](const std::string& folder) { return take_weights(folder, *load_any(folder).model).files; };
  EXPECT_EQ(taken(kTexts + "llama"),
            (std::map<std::string, std::string>{{name, base::read_file(kTexts + "llama/" + name, 1 << 20)}}));
  EXPECT_TRUE(taken(kTexts + "bert_cls").empty());
}

// A model made with memory knows its classes by the names that the folder has, and where its texts end.
TEST(TakeWeights, NamesAndEndsStayWithAModelThatGetsMemory) {
  const test::TemporaryFolder folder;
  const std::vector<std::string> names = {"n", "e", "s", "w"};
  const std::string published = with_class_names(folder, names), made = folder / "made", back = folder / "back";
  convert({.model = published,
           .out = made,
           .memory = {"recurrent_tokens,layout=encoder,num_mem_tokens=2,cls_token=1,sep_token=2,pad_token=0"}});
  EXPECT_EQ(class_names(made), names);
  convert({.model = published, .to = "mnemo", .out = folder / "ours"});
  convert({.model = folder / "ours", .to = "huggingface_bert", .out = back});
  EXPECT_EQ(class_names(back), names);
  EXPECT_FALSE(std::filesystem::exists(back + "/classes.txt"));

  const std::string llama = folder / "llama", name = "/generation_config.json";
  std::filesystem::create_directories(llama);
  std::filesystem::copy(kTexts + "llama/model.safetensors", llama + "/model.safetensors");
  base::Node config = base::parse_json(base::read_file(kTexts + "llama/config.json", 1 << 20), "config.json");
  config.set("eos_token_id", 9);
  base::write_file_atomic(llama + "/config.json", base::to_json(config));
  convert({.model = llama, .out = folder / "short", .segment = 8});
  EXPECT_EQ(search_settings_in(folder / "short").at("eos_token_id").as_int(), 9);
  convert({.model = kTexts + "gpt2", .to = "t2r", .out = folder / "t2r"});
  EXPECT_EQ(base::read_file(folder / "t2r" + name, 1 << 20), base::read_file(kTexts + "gpt2" + name, 1 << 20));
}

// The first Marian models keep the settings of their search in config.json.
TEST(TakeWeights, SettingsOfTheSearchStayWithTheModel) {
  const test::TemporaryFolder folder;
  const std::string published = kTexts + "marian_published_names", ours = folder / "ours";
  convert({.model = published, .to = "mnemo", .out = ours});
  const base::Node settings = search_settings_in(ours);
  EXPECT_EQ(settings.at("num_beams").as_int(), 4);
  EXPECT_EQ(settings.at("forced_eos_token_id").as_int(), 0);
  EXPECT_EQ(settings.at("bad_words_ids"), base::Node::array({base::Node::array({30})}));
  EXPECT_EQ(settings.find("d_model"), nullptr);
  std::filesystem::remove(ours + "/generation_config.json");  // as earlier versions converted
  for (const std::string& from : {published, ours}) {
    const auto model = load_any(published).model;
    const Taken taken = take_weights(from, *model);
    ASSERT_TRUE(taken.files.contains("generation_config.json")) << from;
    EXPECT_EQ(base::parse_json(taken.files.at("generation_config.json"), from), settings);
  }
  // With memory, too.
  std::filesystem::create_directories(folder / "t5");
  for (const char* file : {"/config.json", "/model.safetensors"})
    std::filesystem::copy_file(kTexts + "t5_v10" + file, folder / "t5" + file);
  convert({.model = folder / "t5",
           .out = folder / "memory",
           .memory = {"recurrent_tokens,layout=encoder,memory_position=front,num_mem_tokens=2,pad_token=0,"
                      "eos_token=1"}});
  EXPECT_EQ(search_settings_in(folder / "memory"),
            base::Node::table({{"decoder_start_token_id", 0}, {"eos_token_id", 1}, {"pad_token_id", 0}}));
  // A file of its own goes along as it is; an encoder alone writes nothing.
  convert({.model = kTexts + "marian", .to = "mnemo", .out = folder / "own"});
  EXPECT_EQ(search_settings_in(folder / "own"), search_settings_in(kTexts + "marian"));
  convert({.model = kTexts + "t5_v10", .to = "source_encoder", .out = folder / "encoder"});
  EXPECT_FALSE(std::filesystem::exists(folder / "encoder/generation_config.json"));
}

}  // namespace
}  // namespace mnemo::bundle
