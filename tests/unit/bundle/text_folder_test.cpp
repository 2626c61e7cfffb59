// Folders of published causal text models: split files, names, element types, conversions there and back.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/bundle.h"
#include "bundle/convert.h"
#include "bundle/model_folder.h"
#include "bundle/require_exportable.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"
#include "weights/sharded.h"

namespace mnemo::bundle {
namespace {

using test::difference;
using test::expect_error;
using test::kCausal;
using test::kTexts;
using test::logits_of;

base::Node config_in(const std::string& folder) {
  return weights::parse_model_config(read_model_config(folder), folder);
}

/// A copy of a folder's config.json, changed, and its weights.
struct Changed {
  explicit Changed(const std::string& of) : config(config_in(kTexts + of)) {
    std::filesystem::copy(kTexts + of + "/model.safetensors", folder / "model.safetensors");
  }
  std::shared_ptr<models::Model> load() const {
    base::write_file_atomic(folder / "config.json", base::to_json(config));
    return load_any(folder.path()).model;
  }
  test::TemporaryFolder folder;
  base::Node config;
};

/// The folder's tensors in two files with an index, which `change` may spoil.
struct Split {
  explicit Split(const std::string& of) {
    std::filesystem::copy(kTexts + of + "/config.json", folder / "config.json");
    const weights::TensorFile whole = weights::read_safetensors(kTexts + of + "/model.safetensors");
    weights::NamedTensors parts[2];
    map = base::Node::table();
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
      parts[i % 2].push_back(whole.tensors[i]);
      map.set(whole.tensors[i].first, i % 2 == 0 ? "part-1.safetensors" : "part-2.safetensors");
    }
    weights::write_safetensors(folder / "part-1.safetensors", parts[0]);
    weights::write_safetensors(folder / "part-2.safetensors", parts[1]);
  }
  std::shared_ptr<models::Model> load() const {
    base::write_file_atomic(folder / weights::kIndexFile,
                            base::to_json(base::Node::table({{"metadata", base::Node::table()}, {"weight_map", map}})));
    return load_any(folder.path()).model;
  }
  test::TemporaryFolder folder;
  base::Node map;
};

TEST(TextFolder, AFileMayBeSplit) {
  for (const std::string& name : kCausal)
    EXPECT_EQ(difference(logits_of(*Split(name).load()), logits_of(*load_any(kTexts + name).model)), 0.0) << name;
}

TEST(TextFolder, IndexesThatLieAreRefused) {
  const std::string tensor = "model.norm.weight";
  const auto refuses = [&](const base::Node& file, std::initializer_list<std::string> parts) {
    Split split("llama");
    split.map.set(tensor, file);
    expect_error<base::InputError>([&] { split.load(); }, parts);
  };
  for (const char* outside : {"../part-1.safetensors", "/etc/passwd", "a/b.safetensors", "", ".hidden"})
    refuses(outside, {"weight_map", tensor, "same folder"});
  refuses(3, {"weight_map", tensor, "integer 3"});
  refuses("part-3.safetensors", {"part-3.safetensors", "missing"});
  const weights::TensorFile first = weights::read_safetensors(Split("llama").folder / "part-1.safetensors");
  refuses(first.find(tensor) != nullptr ? "part-2.safetensors" : "part-1.safetensors", {tensor});
  Split unlisted("llama");
  unlisted.map.erase(tensor);
  expect_error<base::InputError>([&] { unlisted.load(); }, {tensor, "does not list"});
  Split cut("llama");
  std::filesystem::resize_file(cut.folder / "part-2.safetensors", 900);
  expect_error<base::InputError>([&] { cut.load(); }, {"part-2.safetensors"});
  Split empty("llama");
  empty.map = base::Node::table();
  expect_error<base::InputError>([&] { empty.load(); }, {"weight_map"});
}

TEST(TextFolder, WeightsMayBeNarrow) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const Changed changed("llama");
    weights::TensorFile file = weights::read_safetensors(kTexts + "llama/model.safetensors");
    for (auto& [name, tensor] : file.tensors) tensor = tensor.to(type);
    weights::write_safetensors(changed.folder / "model.safetensors", file.tensors);
    const auto model = changed.load();
    EXPECT_EQ(model->parameters().all().front().tensor.scalar_type(), at::kFloat);
    const double error = difference(logits_of(*model), logits_of(*load_any(kTexts + "llama").model));
    EXPECT_GT(error, 0.0);
    EXPECT_LT(error, 1.0);
  }
}

// The written weights are float32, and transformers would narrow them to the type that config.json names.
TEST(TextFolder, AWrittenConfigNamesTheTypeOfTheWrittenWeights) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    Changed changed("llama");
    changed.config.erase("dtype");
    changed.config.set(key, "bfloat16");
    changed.load();
    const std::string folder = changed.folder.path(), ours = folder + "/ours", back = folder + "/back";
    convert({.model = folder, .to = "mnemo", .out = ours});
    convert({.model = ours, .to = "huggingface_llama", .out = back});
    base::Node expected = changed.config;
    expected.set(key, "float32");
    EXPECT_EQ(config_in(back), expected) << key;
  }
}

/// The message that refuses to write a model in a format; empty if it can be written.
std::string reasons_of(const char* name, const models::ModelOptions& options) {
  const weights::ForeignFormat& format = weights::foreign_format(name);
  const auto read_back = [&](const base::Node& config) {
    return base::write_options(models::read_model_options(format.options(config)));
  };
  try {
    exported_config(format, options, read_back, "who");
  } catch (const base::InputError& error) {
    return error.what();
  }
  return {};
}

TEST(TextFolder, EveryReasonAgainstAFormatIsNamedTheRealOnesFirst) {
  const models::ModelOptions options = models::read_model_options(base::parse_toml(
      "segment_size = 8\nmemory = [{ type = \"recurrent_tokens\", num_mem_tokens = 2 }]\n[embedding]\nvocab_size = 9\n"
      "[backbone]\nnum_layers = 1\ndim = 8\nnum_heads = 2\nffn_dim = 8\nnorm = \"post\"\nlayer_drop = 0.1\n"
      "attention = { type = \"relative\" }\n",
      "test"));
  std::string text = reasons_of("huggingface_gpt2", options);
  size_t last = 0;
  for (const char* part : {"who: the format cannot store 'backbone.attention': expected softmax, found relative; "
                           "'memory': expected none, found recurrent_tokens; ",
                           "'backbone.norm': expected \"pre\", found \"post\"",
                           "'backbone.layer_drop': expected 0.0, found 0.1", "dropout does not change the outputs"}) {
    const size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part << " in " << text;
    EXPECT_GE(at, last) << part << " in " << text;
    last = at;
  }
  EXPECT_EQ(text.find("vocab_size"), std::string::npos) << text;
  // A format of rotary positions: their lack is one reason among the others.
  for (const char* name : {"huggingface_llama", "huggingface_mistral", "huggingface_gpt_neox"}) {
    text = reasons_of(name, options);
    for (const char* part : {"cannot store 'backbone.attention': expected softmax", "found relative; 'memory': ",
                             "'backbone.norm': expected \"pre\", found \"post\"", "'head.bias': expected false"})
      EXPECT_NE(text.find(part), std::string::npos) << name << ": " << part << " in " << text;
    models::ModelOptions plain = models::read_model_options(base::parse_toml(
        "segment_size = 8\n[embedding]\nvocab_size = 9\n[backbone]\nnum_layers = 1\ndim = 8\nnum_heads = 2\n"
        "ffn_dim = 8\nnorm = \"post\"\nattention = \"softmax\"\n",
        "test"));
    text = reasons_of(name, plain);
    for (const char* part : {"'backbone.norm': expected \"pre\", found \"post\"",
                             "'backbone.attention.rotary': expected a table, found null"})
      EXPECT_NE(text.find(part), std::string::npos) << name << ": " << part << " in " << text;
    EXPECT_EQ(text.find("ForCausalLM"), std::string::npos) << text;
  }
}

TEST(TextFolder, EveryReasonAgainstAFormatOfEncodersIsNamed) {
  const models::ModelOptions options = models::read_model_options(base::parse_toml(
      "segment_size = 8\n[embedding]\nvocab_size = 9\n"
      "[backbone]\ntype = \"encoder\"\nnum_layers = 1\ndim = 8\nnum_heads = 2\nffn_dim = 8\n"
      "attention = { type = \"relative\" }\n[head]\ntype = \"classification\"\nnum_classes = 2\npool = \"mean\"\n",
      "test"));
  for (const char* name : {"huggingface_bert", "huggingface_roberta", "huggingface_deberta_v2"}) {
    const std::string text = reasons_of(name, options);
    for (const char* part :
         {"cannot store 'backbone.attention': expected ", "found relative; ", "'backbone.embed_norm': ",
          "'embedding.scale': ", "'head.pool': expected \"first\", found \"mean\"", "'head.pooler': "})
      EXPECT_NE(text.find(part), std::string::npos) << name << ": " << part << " in " << text;
    EXPECT_EQ(text.find("found null"), std::string::npos) << text;
  }
}

TEST(TextFolder, AnExportedFolderWithOurVocabularyIsReadAgain) {
  const test::TemporaryFolder folder;
  convert({.model = kTexts + std::string("gpt2"), .to = "mnemo", .out = folder / "ours"});
  convert({.model = folder / "ours", .to = "huggingface_gpt2", .out = folder / "back"});
  base::Node words = base::Node::array({"<unk>", "<eos>"});
  const int64_t size = config_in(folder / "back").at("vocab_size").as_int();
  while (static_cast<int64_t>(words.size()) < size) words.push_back(fmt::format("word{}", words.size()));
  base::write_file_atomic(folder / "back/vocabulary.json",
                          base::to_json(base::Node::table({{"type", "words"}, {"vocabulary", words}})));
  const Bundle read = read_bundle(folder / "back");
  ASSERT_NE(read.format, nullptr);
  EXPECT_EQ(read.format->name, "huggingface_gpt2");
  ASSERT_NE(read.tokenizer, nullptr);
}

TEST(TextFolder, SegmentsThatStandAloneAreToldAtExport) {
  std::string log;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  for (const auto& [name, told] :
       {std::pair("gpt2", "other programs read up to 28 tokens at once, so from token 7 on"),
        std::pair("llama", "other programs read a whole text at once, so from token 7 on")}) {
    const test::TemporaryFolder folder;
    const std::string format(load_any(kTexts + name).format->name);
    log.clear();
    convert({.model = kTexts + name, .to = "mnemo", .out = folder / "whole"});
    convert({.model = folder / "whole", .to = format, .out = folder / "back"});
    EXPECT_EQ(log, "") << "as it was";
    convert({.model = kTexts + name, .out = folder / "short", .segment = 6});
    convert({.model = folder / "short", .to = format, .out = folder / "back"});
    EXPECT_NE(log.find(told), std::string::npos) << log;
  }
}

// Trained on in shorter segments: without memories these are no part of the model.
TEST(TextFolder, SegmentsOfATrainingAreNotPartOfAModelWithoutMemory) {
  for (const char* name : {"gpt2", "llama"}) {
    const test::TemporaryFolder folder;
    convert({.model = kTexts + name, .out = folder / "short", .segment = 6});
    const std::string format(load_any(kTexts + name).format->name);
    convert({.model = folder / "short", .to = format, .out = folder / "back"});
    EXPECT_EQ(difference(logits_of(*load_any(folder / "back").model), logits_of(*load_any(kTexts + name).model)), 0.0);
    convert({.model = kTexts + name,
             .out = folder / "memory",
             .memory = {"recurrent_tokens,num_mem_tokens=2,block_mask=causal"},
             .segment = 6});
    expect_error<base::InputError>([&] { convert({.model = folder / "memory", .to = format, .out = folder / "no"}); },
                                   {"memory"});
  }
}

TEST(TextFolder, NamesAreReadWithAndWithoutPrefix) {
  const Changed changed("llama");
  weights::TensorFile file = weights::read_safetensors(kTexts + "llama/model.safetensors");
  for (auto& [name, tensor] : file.tensors) {
    if (name.starts_with("model.")) name = name.substr(6);
  }
  file.tensors.emplace_back("score.weight", at::zeros({3, 24}));  // a head that is not used
  weights::write_safetensors(changed.folder / "model.safetensors", file.tensors);
  EXPECT_EQ(difference(logits_of(*changed.load()), logits_of(*load_any(kTexts + "llama").model)), 0.0);
  file.tensors.emplace_back("layers.7.mlp.up_proj.weight", at::zeros({40, 24}));
  weights::write_safetensors(changed.folder / "model.safetensors", file.tensors);
  expect_error<base::InputError>([&] { changed.load(); }, {"layers.7.mlp.up_proj.weight"});
}

TEST(TextFolder, ConfigsThatAskForMoreThanTheFileHoldsAreRefused) {
  for (const auto& [key, value] : {std::pair("num_hidden_layers", int64_t{1000}),
                                   {"intermediate_size", 1 << 20},
                                   {"vocab_size", 1 << 24},
                                   {"num_attention_heads", 1024}}) {
    Changed changed("llama");
    changed.config.set(key, value);
    expect_error<base::InputError>([&] { changed.load(); }, {"model.safetensors"});
  }
  Changed more("llama");
  more.config.set("num_hidden_layers", 3);
  expect_error<base::InputError>([&] { more.load(); }, {"model.layers.2.", "missing"});
}

TEST(TextFolder, SettingsThatAreNotSupportedAreNamed) {
  const auto refuses = [](const char* of, const char* key, const base::Node& value) {
    Changed changed(of);
    changed.config.set(key, value);
    expect_error<base::InputError>([&] { changed.load(); }, {key, "expected"});
  };
  const auto refuses_shape = [](const char* of, const char* layers) {
    Changed fewer(of);
    fewer.config.set(layers, 1);
    expect_error<base::InputError>([&] { fewer.load(); }, {"model.safetensors: does not fit the model; unexpected"});
  };
  refuses("gpt2", "scale_attn_weights", false);
  refuses("gpt2", "scale_attn_by_inverse_layer_idx", true);
  refuses("gpt2", "activation_function", "tanh");
  refuses("gpt2", "n_layer", 0);
  refuses("gpt2", "n_embd", "wide");
  refuses("qwen2", "use_sliding_window", true);
  for (const char* causal : {"gpt2", "llama", "mistral", "qwen2", "gpt_neox"}) {
    refuses(causal, "is_causal", false);
    refuses(causal, "layer_types", base::Node::array({"linear_attention", "linear_attention"}));
  }
  for (const char* any : {"gpt2", "t5_v10", "marian"}) {
    refuses(any, "is_causal", base::Node());  // null is false there
    refuses(any, "num_attention_heads", 1);   // another name of the key that its config has
    refuses(any, "num_hidden_layers", 1);
    refuses(any, "hidden_size", 1);
  }
  for (const char* encoder : {"bert_cls", "roberta_cls", "t5_v10", "marian"}) refuses(encoder, "is_causal", true);
  for (const char* pair : {"t5_v10", "marian"}) refuses(pair, "is_causal", false);
  for (const char* key : {"num_layers", "num_decoder_layers"}) refuses_shape("t5_v10", key);
  for (const char* key : {"encoder_layers", "decoder_layers"}) refuses_shape("marian", key);
  refuses("mistral", "layer_types", base::Node::array({"sliding_attention", "full_attention"}));
  refuses("llama", "layer_types", base::Node::array({"full_attention"}));  // of two layers
  for (const char* model : {"bert_cls", "roberta_cls", "deberta_v3_cls"}) {
    refuses(model, "problem_type", "multi_label_classification");
    refuses(model, "problem_type", "regression");
    refuses(model, "id2label", base::Node::array({"no", "yes"}));
    refuses(model, "id2label", base::Node::table({{"0", "score"}}));
  }
  for (const char* model : {"bert_cls", "roberta_cls", "t5_v10", "marian"}) {
    refuses(model, "pad_token_id", -1);
    refuses(model, "pad_token_id", int64_t{1} << 20);
    refuses(model, "dtype", 5);
  }
  for (const char* model : {"gpt2", "llama", "qwen2"}) refuses(model, "architectures", "LlamaForCausalLM");
  refuses("t5_v11", "decoder_start_token_id", int64_t{1} << 20);
  refuses("mistral", "sliding_window", 0);
  refuses("mistral", "attention_dropout", 0.1);
  refuses("llama", "num_key_value_heads", 3);
  refuses("llama", "pretraining_tp", 2);
  refuses("llama", "rope_parameters", base::Node::table({{"rope_type", "yarn"}, {"factor", 2.0}}));
  refuses("llama_head_dim", "rope_scaling", base::Node::table({{"type", "dynamic"}, {"factor", 2.0}}));
  refuses("gpt_neox_published_names", "rotary_pct", 0.2);  // 3 channels
  refuses("gpt_neox_published_names", "rotary_pct", 1.5);
  refuses("llama3", "tie_word_embeddings", false);  // the file has no matrix of its own
}

TEST(TextFolder, LayersOfTheTypeThatIsBuiltMayBeNamed) {
  for (const auto& [of, type] : {std::pair("llama", "full_attention"), std::pair("mistral", "sliding_attention")}) {
    Changed named(of);
    named.config.set("layer_types", base::Node::array({type, type}));
    named.config.set("is_causal", true);
    EXPECT_EQ(difference(logits_of(*named.load()), logits_of(*load_any(kTexts + of).model)), 0.0) << of;
  }
}

// As transformers reads them: settings under other keys, in another case, or null.
TEST(TextFolder, KeysCountAsInTransformers) {
  Changed outer("llama3"), inner("llama3");
  const char* const original = "original_max_position_embeddings";
  const char* const where = inner.config.contains("rope_scaling") ? "rope_scaling" : "rope_parameters";
  base::Node settings = outer.config.at(where);
  const base::Node first = settings.at(original);
  settings.set(original, first.as_int() * 2);
  outer.config.set(where, settings);
  outer.config.set(original, first);
  EXPECT_EQ(difference(logits_of(*outer.load()), logits_of(*inner.load())), 0.0) << "outside the settings first";
  settings.erase(original);
  inner.config.set(where, settings);
  EXPECT_EQ(
      inner.load()->options().backbone.stack().attention.table().at("rotary").at("scaling").at("original_max_len"),
      inner.config.at("max_position_embeddings"));
  Changed deberta("deberta_v3_cls");
  deberta.config.set("norm_rel_ebd", "LAYER_NORM");
  EXPECT_TRUE(deberta.load()->options().backbone.stack().attention.table().at("norm_positions").as_bool());
  Changed t5("t5_v10");
  EXPECT_TRUE(t5.load()->options().head.table().at("scaled").as_bool());
  t5.config.set("scale_decoder_outputs", base::Node());
  t5.config.set("eos_token_id", base::Node::array({t5.config.at("eos_token_id")}));
  EXPECT_FALSE(t5.load()->options().head.table().at("scaled").as_bool());
}

TEST(TextFolder, OldAndNewWordsForPositionsAreTheSame) {
  Changed old("llama");
  old.config.erase("rope_parameters");
  old.config.set("rope_theta", 10000.0);
  EXPECT_EQ(difference(logits_of(*old.load()), logits_of(*load_any(kTexts + "llama").model)), 0.0);
  Changed linear("llama");
  linear.config.set("rope_parameters",
                    base::Node::table({{"rope_type", "linear"}, {"rope_theta", 10000.0}, {"factor", 2.0}}));
  const base::Node rotary = linear.load()->options().backbone.stack().attention.table().at("rotary");
  EXPECT_EQ(rotary.at("scaling").at("type").as_string(), "interpolation");
  EXPECT_GT(difference(logits_of(*linear.load()), logits_of(*load_any(kTexts + "llama").model)), 1e-3);
}

TEST(TextFolder, ACopyOfTheEmbeddingIsTied) {
  const Changed changed("qwen2");
  weights::TensorFile file = weights::read_safetensors(kTexts + "qwen2/model.safetensors");
  const at::Tensor table = file.at("model.embed_tokens.weight", "qwen2");
  file.tensors.emplace_back("lm_head.weight", table.clone());
  weights::write_safetensors(changed.folder / "model.safetensors", file.tensors);
  EXPECT_TRUE(changed.load()->options().head.table().at("tied").as_bool());
  file.tensors.back().second = table + 1;  // other numbers win over the config
  weights::write_safetensors(changed.folder / "model.safetensors", file.tensors);
  EXPECT_FALSE(changed.load()->options().head.table().at("tied").as_bool());
}

TEST(TextFolder, GoesToMnemoAndBackWithEqualTensors) {
  for (const std::string& name : kCausal) {
    const test::TemporaryFolder folder;
    const std::string ours = folder / "ours", back = folder / "back";
    convert({.model = kTexts + name, .to = "mnemo", .out = ours});
    const std::string format(load_any(kTexts + name).format->name);
    convert({.model = ours, .to = format, .out = back});
    EXPECT_EQ(config_in(back), config_in(kTexts + name)) << name;
    const weights::TensorFile expected = weights::read_safetensors(kTexts + name + "/model.safetensors"),
                              found = weights::read_safetensors(back + "/model.safetensors");
    for (const auto& [tensor, value] : found.tensors) {
      const at::Tensor* same = expected.find(tensor);
      if (same == nullptr) same = expected.find(tensor.substr(tensor.find('.') + 1));
      ASSERT_NE(same, nullptr) << name << ": " << tensor;
      EXPECT_TRUE(at::equal(value, *same)) << name << ": " << tensor;
    }
    // A config.json made anew says the same.
    std::filesystem::remove(ours + "/source_config.json");
    const std::string anew = folder / "anew";
    convert({.model = ours, .to = format, .out = anew});
    EXPECT_EQ(difference(logits_of(*load_any(anew).model), logits_of(*load_any(kTexts + name).model)), 0.0) << name;
  }
}

// The format of the other feed-forward has no names for these tensors.
TEST(TextFolder, AT5GoesToTheFormatOfItsFeedForward) {
  const test::TemporaryFolder folder;
  const auto refuses = [&](const char* model, const char* to, const char* sibling) {
    expect_error<base::InputError>([&] { convert({.model = kTexts + model, .to = to, .out = folder / "no"}); },
                                   {std::string("expected --to ") + sibling, std::string("found --to ") + to});
    EXPECT_FALSE(std::filesystem::exists(folder / "no"));
  };
  refuses("t5_v11", "huggingface_t5", "huggingface_t5_gated");
  refuses("t5_v10", "huggingface_t5_gated", "huggingface_t5 ");
}

// GPT-2's tokenizer in the names that it was first published under.
TEST(TextFolder, FilesOfEveryTokenizerGoAlong) {
  const Changed changed("gpt2");
  changed.load();
  for (const char* name : {"encoder.json", "vocab.bpe", "merges.txt", "source.spm", "tokenizer.model"})
    base::write_file_atomic(changed.folder / name, "{}");
  const std::string ours = changed.folder / "ours";
  convert({.model = changed.folder.path(), .to = "mnemo", .out = ours});
  for (const char* name : {"encoder.json", "vocab.bpe", "merges.txt", "source.spm", "tokenizer.model"})
    EXPECT_TRUE(std::filesystem::exists(ours + "/" + name)) << name;
}

// T5's encoder alone has the rows that the decoder reads; a head reads their mean.
TEST(TextFolder, AnEncoderOfAPairStandsAlone) {
  for (const char* name : {"t5_v10", "t5_v11"}) {
    const test::TemporaryFolder folder;
    const auto pairs = load_any(kTexts + name).model;
    const Converted made = convert({.model = kTexts + name, .to = "source_encoder", .out = folder / "encoder"});
    EXPECT_LT(made.parameters, pairs->parameters().count());
    const auto encoder = read_bundle(folder / "encoder").model;
    const int64_t words = core::pair_input(pairs->input()).source_vocab_size;
    EXPECT_EQ(core::token_input(encoder->input()).vocab_size, words);
    core::Segment segment;
    segment.tokens = test::Numbers(1).tokens({2, 9}, words);
    segment.valid = at::arange(9).unsqueeze(0) < at::tensor({9, 5}, at::kLong).unsqueeze(1);
    const at::NoGradGuard no_grad;
    const core::State state = core::source_reader(*pairs).read_source(segment.tokens, segment.valid,
                                                                      core::Mode::evaluate, pairs->initial_state(2));
    at::Tensor rows;
    for (const auto& [field, tensor] : state.fields()) {
      if (field.path == "source.encoded.encoder_output") rows = tensor;
    }
    ASSERT_TRUE(rows.defined());
    const at::Tensor real = segment.valid.unsqueeze(-1),
                     mean = rows.masked_fill(real.logical_not(), 0.0).sum(1, true) / real.sum(1, true);
    EXPECT_LE(difference(encoder->forward(segment, encoder->initial_state(2)).hidden, mean), 1e-6) << name;
  }
  const test::TemporaryFolder folder;
  for (const char* name : {"gpt2", "marian"})
    expect_error<base::InputError>(
        [&] { convert({.model = kTexts + name, .to = "source_encoder", .out = folder / "no"}); },
        {"--to source_encoder"});
}

}  // namespace
}  // namespace mnemo::bundle
