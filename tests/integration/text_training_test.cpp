// Published models of texts, trained further with their own tokenizer: masked tokens, next tokens, answers.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>

#include "tests/integration/text_training.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using namespace test;

const std::string kMasked = R"(
[data]
type = "masked_text"
valid_fraction = 0.2
test_fraction = 0.0
whole_words = true
max_length = 16
)" + train_table(60, 8, 0.003);

TEST_F(TextTraining, MaskedLanguageModellingGoesOnAndComesBack) {
  const std::string bert = published("bert_mlm");
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the film was goodly . a bad film was w" + std::to_string(13 + i % 3) + " .\n";
  write(folder_ / "text.txt", text);
  const std::string out = folder_ / "run";
  const std::vector<std::string> settings = {"model.from=" + bert, "data.tokenizer=" + bert,
                                             "data.train=" + (folder_ / "text.txt")};
  std::vector<std::string> first = settings;
  first.insert(first.end(), {"train.steps=1", "data.valid=" + (folder_ / "text.txt"), "data.valid_fraction=0"});
  ASSERT_EQ(train(kMasked, first, folder_ / "first").status, 0);
  EXPECT_EQ(metrics_of(folder_ / "first", {"--data", folder_ / "text.txt"}).at("nll"),
            metrics_of(folder_ / "first").at("nll"))
      << "a file given is read as the run reads its own";
  const Finished alone = run({"eval", bert, "--data", folder_ / "text.txt"});
  EXPECT_EQ(alone.status, 2);
  EXPECT_TRUE(holds(alone.err, "is not in a run's folder, whose recipe says how texts are read")) << alone.err;
  const Finished trained = train(kMasked, settings, out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_FALSE(holds(trained.err, "fresh")) << trained.err;
  EXPECT_LT(metrics_of(out).at("perplexity").as_double(),
            metrics_of(folder_ / "first").at("perplexity").as_double() / 3);
  const Finished back = run({"convert", out, "--to", "huggingface_bert", "--out", folder_ / "back"});
  EXPECT_EQ(back.status, 0) << back.err;

  std::vector<std::string> no_mask = settings;
  write(bert + "/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n");
  const Finished refused = train(kMasked, no_mask, folder_ / "refused");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "[MASK]")) << refused.err;
  const Finished counted = run({"data", folder_ / "recipe.toml", "-n", "3"});
  EXPECT_EQ(counted.status, 2);
  EXPECT_TRUE(holds(counted.err, "--count goes with data whose samples are printed")) << counted.err;
}

constexpr const char* kDecoder = R"(
[data]
valid_fraction = 0.2
test_fraction = 0.0
[model]
segment_size = 8
[train]
steps = 40
batch_size = 4
segments_per_step = 2
optimiser = { type = "adamw", lr = 0.003 }
)";

TEST_F(TextTraining, DecodersLearnATextWithTheirOwnTokenizer) {
  std::string text;
  for (int i = 0; i < 150; ++i) text += i % 3 == 0 ? "the cat sat\n" : "a cat ate the hat\n";
  write(folder_ / "text.txt", text);
  const Finished made = run({"data", "tokenizer", folder_ / "text.txt", "--type", "bpe", "--vocab-size", "24", "--out",
                             folder_ / "tokenizer"});
  ASSERT_EQ(made.status, 0) << made.err;
  for (const std::string name : {"gpt2", "llama"}) {
    const std::string model = folder_ / name, out = folder_ / (name + "_run");
    std::filesystem::copy(kFolders + name, model);
    std::filesystem::copy_file(folder_ / "tokenizer/tokenizer.model", model + "/tokenizer.model");
    const std::vector<std::string> settings = {
        "model.from=" + model, "data.train=" + (folder_ / "text.txt"),
        "model.memory=[{type=\"recurrent_tokens\",num_mem_tokens=2,block_mask=\"causal\"}]"};
    const Finished trained = train(kDecoder, settings, out);
    ASSERT_EQ(trained.status, 0) << name << trained.err;
    EXPECT_TRUE(holds(trained.err, "initial weights; fresh: memory.tokens\n")) << trained.err;
    EXPECT_LT(metrics_of(out).at("perplexity").as_double(), 3.0) << name;
    EXPECT_EQ(content(out + "/model/tokenizer.model"), content(model + "/tokenizer.model"));
    const Finished written = run({"generate", out, "--prompt", "the cat", "-n", "12", "--temperature", "0"});
    EXPECT_EQ(written.status, 0) << written.err;
    EXPECT_TRUE(holds(written.out, "the cat")) << written.out;
    const std::string started = "model.from=" + out, again = folder_ / "again";
    const Finished next = train(kDecoder, {started, "data.tokenizer=" + out + "/model", settings[1], "train.steps=1"},
                                again);
    const std::string line = "model: " + out + "/model\n";
    EXPECT_EQ(next.err.find(line), next.err.rfind(line)) << next.err;
    EXPECT_TRUE(holds(next.err, line)) << next.err;
    std::filesystem::remove_all(again);
    // Another text, in the same tokens.
    EXPECT_LT(metrics_of(out, {"--data", folder_ / "text.txt"}).at("perplexity").as_double(), 3.0);
  }

  const auto refused = [&](const std::vector<std::string>& settings, const std::string& part) {
    const Finished found = train(kDecoder, settings, folder_ / "refused");
    EXPECT_EQ(found.status, 2) << found.err;
    EXPECT_TRUE(holds(found.err, part)) << found.err;
  };
  const std::string data = "data.train=" + (folder_ / "text.txt"), tokens = "data.tokenizer=" + (folder_ / "gpt2");
  refused({"model.from=" + (folder_ / "none"), tokens, data}, "none");
  std::filesystem::copy(kFolders + "gpt2", folder_ / "bare");
  refused({"model.from=" + (folder_ / "bare"), data}, "bare has no tokenizer, which the model's tokens come from");
  refused({"model.from=" + (folder_ / "gpt2"), "model.preset=transformer_xl_wt103_base", tokens, data}, "'model.from'");
  refused({"model.from=" + (folder_ / "gpt2"), tokens, data, "data.unit=bytes"}, "has a vocabulary of its own");
  refused({"model.from=" + (folder_ / "gpt2"), "data.unit=bytes", data},
          "expected at least the data's 256 different tokens, found 29");
  refused({"model.from=" + (folder_ / "gpt2"), tokens, data, "model.backbone.ffn_dim=7"}, "[7, 24]");

  // Another attention keeps rotary positions, grouped keys and the absence of biases, as with convert.
  const std::string llama = folder_ / "llama";
  const Finished converted = run(
      {"convert", llama, "--attention", "linear,feature_map=elu", "--out", folder_ / "linear"});
  ASSERT_EQ(converted.status, 0) << converted.err;
  const auto attention_of = [&](const std::string& model) {
    return base::parse_json(content(model + "/config.json"), model).at("backbone").at("attention");
  };
  for (const std::string said : {"{type=\"linear\",feature_map=\"elu\"}", "\"linear\""}) {
    std::filesystem::remove_all(folder_ / "linear_run");
    const Finished trained = train(
        kDecoder,
        {"model.from=" + llama, "data.tokenizer=" + llama, data, "train.steps=1", "model.backbone.attention=" + said},
        folder_ / "linear_run");
    ASSERT_EQ(trained.status, 0) << trained.err;
    EXPECT_FALSE(holds(trained.err, "fresh")) << trained.err;
    EXPECT_EQ(attention_of(folder_ / "linear_run/model"), attention_of(folder_ / "linear"));
  }
  refused({"model.from=" + llama, "data.tokenizer=" + llama, data, "model.backbone.attention=lsh"},
          "'lsh' has no 'rotary', which the model's attention needs");
}

/// By definition: W = W0 + lora_alpha / r (B A)^T, as GPT-2's maps are stored [in,out].
TEST_F(TextTraining, AnAdapterOfPeftIsAdded) {
  const std::string model = folder_ / "gpt2", adapter = folder_ / "adapter", name = "transformer.h.0.attn.c_attn";
  std::filesystem::copy(kFolders + "gpt2", model);
  const auto before = weights::read_safetensors(model + "/model.safetensors");
  const at::Tensor start = before.at(name + ".weight", "gpt2");  // [in, 3 in]
  at::Generator generator = at::detail::createCPUGenerator(1);
  const at::Tensor a = at::randn({2, start.size(0)}, generator), b = at::randn({start.size(1), 2}, generator);
  std::filesystem::create_directory(adapter);
  const auto config = [&](const std::string& more) {
    write(adapter + "/adapter_config.json",
          R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["c_attn"])" + more + "}");
  };
  const auto convert = [&] { return run({"convert", model, "--lora", adapter, "--out", folder_ / "merged"}); };
  const std::string full = "base_model.model." + name;
  weights::write_safetensors(adapter + "/adapter_model.safetensors",
                             {{full + ".lora_A.weight", a}, {full + ".lora_B.weight", b}});
  config("");
  const Finished merged = convert();
  ASSERT_EQ(merged.status, 0) << merged.err;
  const Finished back = run({"convert", folder_ / "merged", "--to", "huggingface_gpt2", "--out", folder_ / "back"});
  ASSERT_EQ(back.status, 0) << back.err;
  const auto after = weights::read_safetensors(folder_ / "back/model.safetensors");
  EXPECT_TRUE(at::allclose(after.at(name + ".weight", "back"), start + 3 * at::matmul(b, a).t(), 1e-5, 1e-6));
  EXPECT_TRUE(at::equal(after.at("transformer.h.1.attn.c_attn.weight", "back"),
                        before.at("transformer.h.1.attn.c_attn.weight", "gpt2")));
  // PEFT writes the flag of the module that it wrapped last, which lm_head may be.
  config(R"(, "fan_in_fan_out": false)");
  std::filesystem::remove_all(folder_ / "merged");
  ASSERT_EQ(convert().status, 0);
  std::filesystem::remove_all(folder_ / "back");
  ASSERT_EQ(run({"convert", folder_ / "merged", "--to", "huggingface_gpt2", "--out", folder_ / "back"}).status, 0);
  const auto again = weights::read_safetensors(folder_ / "back/model.safetensors");
  EXPECT_TRUE(at::equal(again.at(name + ".weight", "back"), after.at(name + ".weight", "back")));
  for (const auto& [more, part] :
       {std::pair<std::string, std::string>{", \"use_dora\": true", "'use_dora': unsupported"},
        {", \"init_lora_weights\": \"pissa\"", "'init_lora_weights': unsupported"}}) {
    config(more);
    const Finished refused = convert();
    EXPECT_EQ(refused.status, 2);
    EXPECT_TRUE(holds(refused.err, part)) << refused.err;
  }
  config("");
  // Compared before they are multiplied, which would take 4 TB.
  weights::write_safetensors(
      adapter + "/adapter_model.safetensors",
      {{full + ".lora_A.weight", at::zeros({1, 1'000'000})}, {full + ".lora_B.weight", at::zeros({1'000'000, 1})}});
  EXPECT_TRUE(holds(convert().err, "expected the shape of the model's")) << convert().err;
  weights::write_safetensors(adapter + "/adapter_model.safetensors", {{full + ".lora_A.weight", a}});
  EXPECT_TRUE(holds(convert().err, "lora_B.weight")) << convert().err;
}

/// PEFT takes the input's table alone from the adapter, so that a tied output keeps the model's.
TEST_F(TextTraining, AnAdapterOfPeftLeavesATiedEmbeddingAlone) {
  const std::string model = published("gpt2"), adapter = folder_ / "adapter", name = "transformer.wte";
  const at::Tensor table = weights::read_safetensors(model + "/model.safetensors").at(name + ".weight", "gpt2");
  std::filesystem::create_directory(adapter);
  write(adapter + "/adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})");
  const auto merged = [&](const at::Tensor& whole) {
    weights::write_safetensors(adapter + "/adapter_model.safetensors",
                               {{"base_model.model." + name + ".modules_to_save.weight", whole}});
    return run({"convert", model, "--lora", adapter, "--out", folder_ / "merged"});
  };
  EXPECT_EQ(merged(table.clone()).status, 0);
  const Finished other = merged(table * 2);
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, "the model's output shares this table")) << other.err;

  std::string text;
  for (int i = 0; i < 400; ++i) text += "good film bad ";
  std::string words = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\nfilm\n";
  for (int i = 8; i < 29; ++i) words += "w" + std::to_string(i) + "\n";
  write(model + "/vocab.txt", words);  // as many as the model has
  write(folder_ / "text.txt", text);
  for (const std::string targets : {"\"only\"", "[\"embed.weight\", \"backbone.layers.0.ffn.0.weight\"]"}) {
    std::vector<std::string> keys = {"model.from=" + model, "data.tokenizer=" + model,
                                     "data.train=" + (folder_ / "text.txt"), "train.steps=1"};
    const bool whole = targets == "\"only\"";
    keys.push_back("train.lora={rank=2,targets=" + (whole ? std::string("\"all-linear\"") : targets) + "}");
    if (whole) keys.emplace_back("train.only=[\"embed.weight\"]");
    std::filesystem::remove_all(folder_ / "run");
    const Finished trained = train(kDecoder, keys, folder_ / "run");
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Finished written = run(
        {"convert", model, "--lora", folder_ / "run/lora.safetensors", "--to", "peft", "--out", folder_ / "peft"});
    EXPECT_EQ(written.status, 2) << targets;
    EXPECT_TRUE(holds(written.err, "PEFT has no place")) << written.err;
    EXPECT_TRUE(holds(written.err, "embed.weight")) << written.err;
    const Finished features = run({"convert", model, "--lora", folder_ / "run/lora.safetensors", "--to", "peft",
                                   "--out", folder_ / "peft", "--features", "3"});
    EXPECT_EQ(features.status, 2);
    EXPECT_TRUE(holds(features.err, "convert: --features and --last go with --to t2r and --to average"))
        << features.err;
  }
}

/// The memory that LoRA's training added is trained too, and its file says all that a merge needs.
TEST_F(TextTraining, LoraTrainsAFreshMemoryAndItsFileNamesIt) {
  write(folder_ / "text.txt", std::string(4000, 'a') + "b");
  const std::string base = folder_ / "base", out = folder_ / "run";
  ASSERT_EQ(train(kDecoder, {"data.train=" + (folder_ / "text.txt"), "train.steps=2"}, base).status, 0);
  const Finished trained = train(kDecoder,
                                 {"data.train=" + (folder_ / "text.txt"), "model.from=" + base, "train.steps=3",
                                  "model.memory=[{type=\"recurrent_tokens\",num_mem_tokens=2,block_mask=\"causal\"}]",
                                  "train.lora={rank=2,targets=\"all-linear\"}"},
                                 out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_TRUE(holds(trained.err, "LoRA: also trains fresh weights: memory.tokens")) << trained.err;
  const auto file = weights::read_safetensors(out + "/lora.safetensors");
  EXPECT_NE(file.find("memory.tokens"), nullptr);
  EXPECT_NE(file.find("backbone.layers.0.ffn.0.weight.lora_a"), nullptr);
  const Finished merged = run({"convert", base, "--lora", out + "/lora.safetensors", "--out", folder_ / "merged"});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const auto whole = weights::read_safetensors(out + "/model/model.safetensors"),
             again = weights::read_safetensors(folder_ / "merged/model.safetensors");
  EXPECT_EQ(whole.tensors.size(), again.tensors.size());
  for (const auto& [name, tensor] : whole.tensors)
    EXPECT_TRUE(at::allclose(again.at(name, "merged"), tensor, 1e-5, 1e-6)) << name;
  const Finished resumed = run({"train", "--resume", out, "--set", "train.steps=4"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(TextTraining, T5AnswersInWords) {
  const std::string t5 = folder_ / "t5_v10", out = folder_ / "run";
  std::filesystem::copy(kFolders + "t5_v10", t5);
  // The end of a text is 1, the padding 0, as the model has them.
  write(t5 + "/vocab.txt",
        "[PAD]\n[SEP]\n[UNK]\n[CLS]\nclassify\ngood\nbad\nfilm\nthe\na\npositive\nnegative\nwas\nvery\n");
  std::string pairs;
  for (int i = 0; i < 32; ++i) {
    const bool good = i % 2 == 1;
    pairs += std::string(i % 4 < 2 ? "the film was " : "a very ") + (good ? "good" : "bad") +
             (i % 4 < 2 ? "\t" : " film\t") + (good ? "positive\n" : "negative\n");
  }
  write(folder_ / "pairs.tsv", pairs);
  const std::string kPairs = R"(
[data]
type = "pairs"
source_prefix = "classify "
label_smoothing = 0.0
translated = 32
metric = "exact_match"
)" + train_table(120, 16, 0.005);
  const std::vector<std::string> settings = {"model.from=" + t5, "data.tokenizer=" + t5,
                                             "data.train=" + (folder_ / "pairs.tsv"),
                                             "data.valid=" + (folder_ / "pairs.tsv"), "data.test_fraction=0"};
  const Finished trained = train(kPairs, settings, out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_FALSE(holds(trained.err, "fresh")) << trained.err;
  EXPECT_GE(metrics_of(out).at("exact_match").as_double(), 0.95);
  write(folder_ / "in.txt", "classify a very bad film\n");
  const std::string command = std::string(kBinary) + " translate " + out + " < " + (folder_ / "in.txt") + " > " +
                              (folder_ / "out.txt");
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(content(folder_ / "out.txt"), "negative\n");
  // How the folder wants to be searched stays with the run.
  EXPECT_EQ(content(out + "/model/generation_config.json"), content(t5 + "/generation_config.json"));

  std::vector<std::string> other = settings;
  other.push_back("model.tokens.eos=7");
  const Finished refused = train(kPairs, other, folder_ / "refused");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "unk = 2), found pad = 0, eos = 7, ")) << refused.err;
}

TEST_F(TextTraining, T5LearnsTheSpansOfAText) {
  const std::string t5 = folder_ / "t5_v11", out = folder_ / "run";
  std::filesystem::copy(kFolders + "t5_v11", t5);
  write(t5 + "/vocab.txt",
        "[PAD]\n[SEP]\n[UNK]\n[CLS]\nthe\ncat\nsat\non\na\nmat\n<extra_id_0>\n<extra_id_1>\n<extra_id_2>\n");
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on a mat the cat sat on a mat\n\n";
  write(folder_ / "text.txt", text);
  constexpr const char* kSpans = R"(
[data]
type = "span_corruption"
document_separator = "blank_line"
max_length = 12
valid_fraction = 0.2
test_fraction = 0.0
[train]
steps = 150
batch_size = 16
optimiser = { type = "adamw", lr = 0.005 }
)";
  const std::vector<std::string> settings = {"model.from=" + t5, "data.tokenizer=" + t5,
                                             "data.train=" + (folder_ / "text.txt")};
  const Finished trained = train(kSpans, settings, out);
  ASSERT_EQ(trained.status, 0) << trained.err;
  EXPECT_GE(metrics_of(out).at("accuracy").as_double(), 0.8);
  EXPECT_GE(metrics_of(out, {"--data", folder_ / "text.txt"}).at("accuracy").as_double(), 0.8);
  write(t5 + "/vocab.txt", "[PAD]\n[SEP]\n[UNK]\n[CLS]\nthe\n");
  const Finished refused = train(kSpans, settings, folder_ / "refused");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "<extra_id_0>")) << refused.err;
}

}  // namespace
}  // namespace mnemo
