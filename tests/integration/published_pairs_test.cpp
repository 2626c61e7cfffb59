// Folders of BERT, RoBERTa, DeBERTa, T5 and Marian as a user has them: converted to ours and back with equal tensors,
// translated with, and refused where they ask for another model.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "base/file_io.h"
#include "base/node.h"
#include "tests/support/command_line.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_source.h"
#include "weights/safetensors.h"

namespace mnemo::published_pairs_test {
namespace {

using test::content;
using test::Finished;
using test::holds;
using test::kBinary;
using test::TemporaryFolder;

const std::string kFolders = MNEMO_SOURCE_DIR "/tests/golden/data/text_import/";

Finished run(const TemporaryFolder& folder, const std::string& arguments, const std::string& input = "") {
  test::write(folder / "in", input);
  const std::string command = fmt::format("{} {} < {} > {} 2> {}", kBinary, arguments, folder / "in", folder / "out",
                                          folder / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(folder / "out"),
          content(folder / "err")};
}

/// A copy of a golden folder that may be changed.
std::string copy_of(const TemporaryFolder& folder, const std::string& name) {
  const std::string copy = folder / name;
  std::filesystem::create_directories(copy);
  for (const char* file : {"config.json", "generation_config.json", "model.safetensors"}) {
    if (std::filesystem::exists(kFolders + name + "/" + file))
      std::filesystem::copy_file(kFolders + name + "/" + file, copy + "/" + file);
  }
  return copy;
}

/// Sets a key of its config.json.
void set_key(const std::string& folder, const std::string& key, const base::Node& value) {
  base::Node config = base::parse_json(content(folder + "/config.json"), "config.json");
  config.set(key, value);
  test::write(folder + "/config.json", base::to_json(config) + "\n");
}

TEST(PublishedFolders, APickleAloneIsRefusedWithWhatToDo) {
  const TemporaryFolder folder;
  const std::string copy = copy_of(folder, "marian");
  std::filesystem::rename(copy + "/model.safetensors", copy + "/pytorch_model.bin");
  const Finished refused = run(folder, "convert " + copy + " --to mnemo --out " + (folder / "out_folder"));
  EXPECT_EQ(refused.status, 2);
  for (const char* part : {"pytorch_model.bin: expected model.safetensors in the same folder", "save_pretrained"})
    EXPECT_TRUE(holds(refused.err, part)) << refused.err;
}

TEST(PublishedFolders, ComeBackWithEqualTensors) {
  const std::map<std::string, std::string> formats = {{"bert_cls", "huggingface_bert"},
                                                      {"bert_mlm", "huggingface_bert"},
                                                      {"roberta_cls", "huggingface_roberta"},
                                                      {"roberta_mlm", "huggingface_roberta"},
                                                      {"deberta_v3_cls", "huggingface_deberta_v2"},
                                                      {"t5_v10", "huggingface_t5"},
                                                      {"t5_v11", "huggingface_t5_gated"},
                                                      {"marian", "huggingface_marian"}};
  for (const auto& [name, format] : formats) {
    const TemporaryFolder folder;
    const std::string ours = folder / "ours", back = folder / "back";
    const Finished there = run(folder, fmt::format("convert {}{} --to mnemo --out {}", kFolders, name, ours));
    ASSERT_EQ(there.status, 0) << name << ": " << there.err;
    const Finished again = run(folder, fmt::format("convert {} --to {} --out {}", ours, format, back));
    ASSERT_EQ(again.status, 0) << name << ": " << again.err;
    const weights::TensorFile before = weights::read_safetensors(kFolders + name + "/model.safetensors"),
                              after = weights::read_safetensors(back + "/model.safetensors");
    for (const auto& [tensor, value] : after.tensors) {
      const at::Tensor* original = before.find(tensor);
      ASSERT_NE(original, nullptr) << name << ": " << tensor;
      EXPECT_TRUE(at::equal(*original, value)) << name << ": " << tensor;
    }
    // T5's table that nobody reads.
    EXPECT_EQ(after.tensors.size() + (name.starts_with("t5_") ? 1 : 0), before.tensors.size()) << name;
    const base::Node config = base::parse_json(content(back + "/config.json"), "back");
    EXPECT_EQ(config, base::parse_json(content(kFolders + name + "/config.json"), "there")) << name;
  }
}

TEST(PublishedFolders, GetMemoryByACommand) {
  const std::map<std::string, std::string> memories = {
      {"bert_cls", "recurrent_tokens,layout=encoder,num_mem_tokens=2,cls_token=3,sep_token=4,pad_token=0"},
      {"roberta_mlm", "recurrent_tokens,layout=encoder,num_mem_tokens=2,cls_token=3,sep_token=4,pad_token=1"},
      {"deberta_v3_cls", "grc,cache_len=4"},
      {"t5_v11", "recurrent_tokens,layout=encoder,memory_position=front,num_mem_tokens=2,pad_token=0,eos_token=1"}};
  for (const auto& [name, memory] : memories) {
    const TemporaryFolder folder;
    const Finished made = run(
        folder, fmt::format("convert {}{} --memory {} --out {} --json", kFolders, name, memory, folder / "made"));
    ASSERT_EQ(made.status, 0) << name << ": " << made.err;
    EXPECT_GT(base::parse_json(made.out, "out").at("fresh").as_int(), 0) << name;
    const weights::TensorFile before = weights::read_safetensors(kFolders + name + "/model.safetensors"),
                              after = weights::read_safetensors(folder / "made/model.safetensors");
    EXPECT_GT(after.tensors.size(), before.tensors.size() - (name.starts_with("t5_") ? 1 : 0)) << name;
  }
  const TemporaryFolder folder;
  const Finished attention = run(folder,
                                 fmt::format("convert {}t5_v10 --attention abc --out {}", kFolders, folder / "x"));
  EXPECT_EQ(attention.status, 2);
  EXPECT_TRUE(holds(attention.err, "whose encoder takes --memory")) << attention.err;
}

TEST(PublishedFolders, WithAnotherModelAreRefusedByKey) {
  struct Wrong {
    const char *folder, *key;
    base::Node value;
    const char* said;
  };
  const Wrong wrong[] = {{"bert_cls", "position_embedding_type", "relative_key", "'position_embedding_type'"},
                         {"bert_cls", "is_decoder", true, "'is_decoder'"},
                         {"bert_cls", "hidden_act", "mish", "'hidden_act'"},
                         {"bert_cls", "hidden_size", 48, "model.safetensors"},
                         {"bert_cls", "vocab_size", 2'000'000'000, "vocab_size"},
                         {"bert_cls", "num_hidden_layers", 900, "expected at most 10 layers"},
                         {"bert_cls", "num_hidden_layers", 1, "bert.encoder.layer.1."},
                         {"roberta_cls", "pad_token_id", 30, "first"},
                         {"deberta_v3_cls", "relative_attention", false, "'relative_attention'"},
                         {"deberta_v3_cls", "conv_kernel_size", 3, "'conv_kernel_size'"},
                         {"deberta_v3_cls", "position_buckets", 1, "num_buckets"},
                         {"deberta_v3_cls", "pos_att_type", base::Node::array({"p2p"}), "'pos_att_type'"},
                         {"t5_v10", "feed_forward_proj", "gated-mish", "'feed_forward_proj'"},
                         {"t5_v10", "relative_attention_num_buckets", 7, "num_buckets"},
                         {"t5_v11", "tie_word_embeddings", "yes", "'tie_word_embeddings'"},
                         {"marian", "normalize_before", true, "'normalize_before'"},
                         {"marian", "share_encoder_decoder_embeddings", false, "'share_encoder_decoder_embeddings'"},
                         {"marian", "decoder_vocab_size", 30, "'decoder_vocab_size'"}};
  for (const Wrong& one : wrong) {
    const TemporaryFolder folder;
    const std::string copy = copy_of(folder, one.folder);
    set_key(copy, one.key, one.value);
    const Finished outcome = run(folder, fmt::format("convert {} --to mnemo --out {}", copy, folder / "out_folder"));
    EXPECT_EQ(outcome.status, 2) << one.folder << " " << one.key << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, one.said)) << one.folder << " " << one.key << ": " << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "out_folder")) << one.folder << " " << one.key;
  }
}

TEST(PublishedFolders, PositionsOfMarianMustBeItsSinusoids) {
  const TemporaryFolder folder;
  const std::string copy = copy_of(folder, "marian_published_names"), path = copy + "/model.safetensors";
  weights::TensorFile file = weights::read_safetensors(path);
  for (auto& [name, tensor] : file.tensors) {
    if (name == "model.encoder.embed_positions.weight") tensor = tensor.clone().add_(1.0);
  }
  std::filesystem::remove(path);
  weights::write_safetensors(path, file.tensors, file.metadata);
  const Finished outcome = run(folder, fmt::format("convert {} --to mnemo --out {}", copy, folder / "x"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(holds(outcome.err, "'model.encoder.embed_positions.weight': expected the sinusoids")) << outcome.err;
}

/// Gives a copy of the Marian folder a tokenizer of its 31 tokens.
void add_tokenizer(const std::string& model) {
  const auto trained = text::train_sentencepiece(
      "unigram",
      {text::TextSource::in_memory("text", "a man is at home\nthe man has a dog\na dog is the man's best friend\n")},
      24);
  const std::string file = trained->save().at(text::kTrainedModelFile);
  base::Node words = base::Node::table({{"</s>", 0}, {"<unk>", 1}, {"<pad>", 30}});
  int64_t next = 2;
  const text::SentencePieceModel pieces = text::read_sentencepiece_model(file, "trained");
  for (int64_t id = 0; id < pieces.pieces.size(); ++id) {
    if (pieces.types[static_cast<size_t>(id)] == text::PieceType::normal)
      words.set(std::string(pieces.pieces[id]), next++);
  }
  for (; next < 30; ++next) words.set(fmt::format("unused{}", next), next);
  for (const char* name : {"/source.spm", "/target.spm"}) test::write(model + name, file);
  test::write(model + "/vocab.json", base::to_json(words));
}

TEST(PublishedTranslation, SearchesAsTheFolderSays) {
  const TemporaryFolder folder;
  const std::string model = copy_of(folder, "marian"), ours = folder / "ours";
  const Finished without = run(folder, "translate " + model, "a man\n");
  EXPECT_EQ(without.status, 2);
  EXPECT_TRUE(holds(without.err, "source.spm")) << without.err;
  add_tokenizer(model);
  const std::string lines = "a man is at home\n\nthe dog has a friend\n";
  const Finished plain = run(folder, "translate " + model + " --max-len-b 12", lines);
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_EQ(std::count(plain.out.begin(), plain.out.end(), '\n'), 3);
  EXPECT_TRUE(holds(plain.out, "\n\n")) << plain.out;
  // Four beams, as generation_config.json says; the best is the first of them all.
  const Finished four = run(folder, "translate " + model + " --max-len-b 12 --nbest 4 --json", "a man is at home\n");
  ASSERT_EQ(four.status, 0) << four.err;
  const base::Node found = base::parse_json(four.out, "out").at("translations");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found.items()[0].at("text").as_string(), plain.out.substr(0, plain.out.find('\n')));
  for (size_t i = 1; i < 4; ++i)
    EXPECT_GE(found.items()[i - 1].at("score").as_double(), found.items()[i].at("score").as_double());
  const Finished five = run(folder, "translate " + model + " --nbest 5", "a man\n");
  EXPECT_EQ(five.status, 2);
  EXPECT_TRUE(holds(five.err, "expected 1 to the beam's 4, found 5")) << five.err;
  const Finished other = run(folder, "translate " + model + " --max-len-a 3", "a man\n");
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, "--max-len-a")) << other.err;
  // A conversion to a folder of ours changes nothing.
  ASSERT_EQ(run(folder, fmt::format("convert {} --to mnemo --out {}", model, ours)).status, 0);
  EXPECT_EQ(run(folder, "translate " + ours + " --max-len-b 12", lines).out, plain.out);
}

// An evaluation finds what translate finds and what score says of it.
TEST(PublishedTranslation, IsMeasuredOnPairs) {
  const TemporaryFolder folder;
  const std::string model = copy_of(folder, "marian"), ours = folder / "ours", settings = "/generation_config.json";
  add_tokenizer(model);
  base::Node search = base::parse_json(content(model + settings), settings);
  search.set("max_length", 13);
  search.set("min_length", 6);
  test::write(model + settings, base::to_json(search));
  ASSERT_EQ(run(folder, fmt::format("convert {} --to mnemo --out {}", model, ours)).status, 0);
  const std::vector<std::string> sources = {"a man is at home", "the dog has a friend", "the man has a dog"};
  const Finished translated = run(folder, "translate " + model, fmt::format("{}\n", fmt::join(sources, "\n")));
  ASSERT_EQ(translated.status, 0) << translated.err;
  std::istringstream lines(translated.out);
  std::string pairs, references;
  for (const std::string& source : sources) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line) && !line.empty());
    if (source == sources.back()) line += " dog";
    pairs += source + "\t" + line + "\n";
    references += line + "\n";
  }
  test::write(folder / "pairs.tsv", pairs);
  test::write(folder / "references", references);
  test::write(folder / "hypotheses", translated.out);
  const Finished scored = run(
      folder, fmt::format("score {} --references {} --json", folder / "hypotheses", folder / "references"));
  ASSERT_EQ(scored.status, 0) << scored.err;
  for (const std::string& one : {model, ours}) {
    const Finished measured = run(
        folder, fmt::format("eval {} --data {} --translated 9 --batch 2 --json", one, folder / "pairs.tsv"));
    ASSERT_EQ(measured.status, 0) << measured.err;
    const base::Node found = base::parse_json(measured.out, "out");
    EXPECT_EQ(found.at("translated").as_int(), 3);
    EXPECT_NEAR(found.at("exact_match").as_double(), 2.0 / 3, 1e-12);
    for (const char* metric : {"bleu", "chrf"})
      EXPECT_EQ(found.at(metric).as_double(), base::parse_json(scored.out, "out").at(metric).at("score").as_double())
          << metric;
    EXPECT_GT(found.at("perplexity").as_double(), 1.0);
  }
}

// A run that starts from a published model is searched alike by training, eval and translate: as the model's folder, or
// its own [data.search], says.
TEST(PublishedTranslation, ARunSearchesAlikeEverywhere) {
  const TemporaryFolder folder;
  const std::string model = copy_of(folder, "marian"), settings = "/generation_config.json";
  add_tokenizer(model);
  base::Node search = base::parse_json(content(model + settings), settings);
  search.set("max_length", 13);
  search.set("min_length", 6);
  test::write(model + settings, base::to_json(search));
  const std::vector<std::string> sources = {"a man is at home", "the dog has a friend", "the man has a dog"};
  const std::string pairs = folder / "pairs.tsv", lines = fmt::format("{}\n", fmt::join(sources, "\n"));
  std::vector<std::string> found;
  for (const char* own : {"", "[data.search]\nbeam_size = 2\nmax_len_a = 0.0\nmax_len_b = 4\nmin_len = 4\n"}) {
    test::write(pairs, "a man\tthe dog\nthe dog\ta man\n");
    test::write(folder / "recipe.toml",
                fmt::format("[data]\ntype = \"pairs\"\ntrain = \"{0}\"\nvalid = \"{0}\"\ntokenizer = \"{1}\"\n"
                            "translated = 9\n{2}[model]\nfrom = \"{1}\"\n[train]\nsteps = 1\nbatch_size = 2\n"
                            "eval_every = 1\noptimiser = {{ type = \"sgd\", lr = 0.0 }}\n",
                            pairs, model, own));
    const auto train = [&](const std::string& out) {
      const Finished trained = run(folder, fmt::format("train {} --out {}", folder / "recipe.toml", out));
      ASSERT_EQ(trained.status, 0) << trained.err;
    };
    const std::string out = folder / fmt::format("run{}", found.size());
    train(out);
    const Finished translated = run(folder, "translate " + out, lines);
    ASSERT_EQ(translated.status, 0) << translated.err;
    found.push_back(translated.out);
    // Its own translations as references: every one is met, by eval and by another training from the same weights.
    std::istringstream answers(translated.out);
    std::string references;
    for (const std::string& source : sources) {
      std::string line;
      ASSERT_TRUE(std::getline(answers, line) && !line.empty()) << translated.out << translated.err;
      references += source + "\t" + line + "\n";
    }
    test::write(pairs, references);
    for (const std::string& data : {" --data " + pairs, std::string()}) {
      const Finished measured = run(folder, "eval " + out + data + " --json");
      ASSERT_EQ(measured.status, 0) << measured.err;
      EXPECT_EQ(base::parse_json(measured.out, "out").at("exact_match").as_double(), 1.0) << data;
    }
    train(out + "again");
    EXPECT_TRUE(holds(content(out + "again/log.jsonl"), "\"exact_match\":1")) << content(out + "again/log.jsonl");
  }
  EXPECT_NE(found[0], found[1]);
}

// The first folders keep the settings in config.json: four beams, no padding, an end that is forced.
TEST(PublishedTranslation, SearchesAsConfigJsonSaysAfterAConversion) {
  const TemporaryFolder folder;
  const std::string model = copy_of(folder, "marian_published_names"), ours = folder / "ours", back = folder / "back";
  add_tokenizer(model);
  ASSERT_EQ(run(folder, fmt::format("convert {} --to mnemo --out {}", model, ours)).status, 0);
  ASSERT_EQ(run(folder, fmt::format("convert {} --to huggingface_marian --out {}", ours, back)).status, 0);
  const std::string arguments = " --max-len-b 12 --nbest 4 --json", lines = "a man is at home\nthe dog has a friend\n";
  const auto found = [&](const std::string& from) {
    const Finished outcome = run(folder, "translate " + from + arguments, lines);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return base::parse_json(outcome.out.substr(0, outcome.out.find('\n')), "out").at("translations");
  };
  const base::Node expected = found(model);
  EXPECT_EQ(found(ours), expected);
  EXPECT_EQ(found(back), expected);
  std::filesystem::remove(ours + "/generation_config.json");  // as earlier versions converted
  EXPECT_EQ(found(ours), expected);
  const Finished five = run(folder, "translate " + ours + " --nbest 5", "a man\n");
  EXPECT_EQ(five.status, 2);
  EXPECT_TRUE(holds(five.err, "expected 1 to the beam's 4, found 5")) << five.err;
}

// A model without classes has no names of them to lose.
TEST(PublishedFolders, GoFromOneFormatToAnotherWithoutAWarning) {
  const TemporaryFolder folder;
  const Finished made = run(
      folder, fmt::format("convert {}llama --to huggingface_mistral --out {}", kFolders, folder / "made"));
  EXPECT_EQ(made.status, 0) << made.err;
  EXPECT_FALSE(holds(made.err, "classes.txt")) << made.err;
  const Finished wrong = run(folder,
                             fmt::format("convert {}t5_v11 --to huggingface_t5 --out {}", kFolders, folder / "wrong"));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(holds(wrong.err, "expected --to huggingface_t5_gated")) << wrong.err;
}

// Every setting of generation_config.json is followed or refused by name.
TEST(PublishedTranslation, FollowsOrRefusesEverySetting) {
  const TemporaryFolder folder;
  const std::string model = copy_of(folder, "marian"), path = model + "/generation_config.json";
  add_tokenizer(model);
  const base::Node published = base::parse_json(content(path), path);
  const auto translated = [&](const std::string& key, const base::Node& value, const std::string& more = "") {
    base::Node changed = published;
    changed.set(key, value);
    test::write(path, base::to_json(changed));
    return run(folder, "translate " + model + " --json" + more, "a man is at home\n");
  };
  const auto found = [](const Finished& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return base::parse_json(outcome.out, "out").at("translations").items().at(0);
  };
  const base::Node plain = found(translated("max_length", 13));
  EXPECT_EQ(found(translated("max_new_tokens", 12)), plain);
  EXPECT_EQ(found(translated("max_new_tokens", 3)), found(translated("max_length", 4)));
  EXPECT_LE(found(translated("max_new_tokens", 3)).at("tokens").as_int(), 3);
  EXPECT_GT(found(translated("min_length", 30)).at("tokens").as_int(), 29 - 1);
  EXPECT_EQ(found(translated("min_length", 30)), found(translated("min_new_tokens", 29)));
  EXPECT_EQ(found(translated("no_repeat_ngram_size", 1, " --max-len-b 25")),
            found(translated("num_beams", 4, " --max-len-b 25 --no-repeat-ngram 1")));
  EXPECT_NE(found(translated("no_repeat_ngram_size", 1, " --max-len-b 25")),
            found(translated("num_beams", 4, " --max-len-b 25")));
  EXPECT_LE(found(translated("no_repeat_ngram_size", 1)).at("tokens").as_int(), 31);
  found(translated("early_stopping", "never", " --max-len-b 25"));
  const Finished drawn = translated("do_sample", true, " --max-len-b 12");
  EXPECT_EQ(found(drawn), plain);
  EXPECT_TRUE(holds(drawn.err, "'do_sample'")) << drawn.err;
  for (const auto& [key, value] : {std::pair<const char*, base::Node>{"repetition_penalty", 1.5},
                                   {"early_stopping", "always"},
                                   {"early_stopping", 3},
                                   {"num_beam_groups", 2},
                                   {"forced_bos_token_id", 4},
                                   {"decoder_start_token_id", 7},
                                   {"eos_token_id", 29},
                                   {"eos_token_id", base::Node::array({0, 29})},
                                   {"stop_strings", base::Node::array({"a"})},
                                   {"num_beams", "4"},
                                   {"repetition_penalty", "x"},
                                   {"renormalize_logits", "yes"},
                                   {"no_repeat_ngram_size", -1},
                                   {"max_new_tokens", 0}}) {
    const Finished refused = translated(key, value);
    EXPECT_EQ(refused.status, 2) << key;
    const std::string name = key == std::string("no_repeat_ngram_size") ? "no_repeat_ngram" : key;
    EXPECT_TRUE(holds(refused.err, name) && holds(refused.err, "generation_config.json")) << key << refused.err;
  }
  found(translated("repetition_penalty", 1));
  EXPECT_EQ(found(translated("forced_eos_token_id", base::Node::array({0}), " --max-len-b 12")), plain);
  const Finished outside = translated("forced_eos_token_id", 99);
  EXPECT_EQ(outside.status, 2);
  EXPECT_TRUE(holds(outside.err, "generation_config.json: ") && holds(outside.err, "99")) << outside.err;
  // Draws keep its lengths and leave its words out: of the one token that is left all are the same.
  EXPECT_LE(found(translated("max_new_tokens", 3, " --sample")).at("tokens").as_int(), 3);
  EXPECT_GE(found(translated("min_new_tokens", 9, " --sample --max-len-b 12")).at("tokens").as_int(), 10);
  base::Node others = base::Node::array();
  for (int64_t token = 1; token < 31; ++token) {
    if (token != 5) others.push_back(base::Node::array({token}));
  }
  const std::string five = " --sample --min-len 5 --max-len-b 6 --seed ";
  const base::Node first = found(translated("bad_words_ids", others, five + "1"));
  EXPECT_EQ(first.at("tokens").as_int(), 6);
  EXPECT_EQ(first, found(translated("bad_words_ids", others, five + "2")));
  // The end token is left out of the list, as in transformers.
  base::Node with_end = published.at("bad_words_ids");
  with_end.push_back(base::Node::array({0}));
  EXPECT_EQ(found(translated("bad_words_ids", with_end, " --max-len-b 12")), plain);
  const Finished longer = run(folder, "translate " + model + " --sample --max-len-a 3", "a man\n");
  EXPECT_EQ(longer.status, 2);
  EXPECT_TRUE(holds(longer.err, "--max-len-a")) << longer.err;
  const Finished shorter = run(folder, "translate " + model + " --min-len 7 --max-len-b 6", "a man\n");
  EXPECT_EQ(shorter.status, 2);
  EXPECT_TRUE(holds(shorter.err, "--min-len: expected at most the 6 tokens of the longest translation")) << shorter.err;
  const Finished begun = [&] {
    test::write(folder / "begin", "a\n");
    return translated("num_beams", 4, " --prefix " + (folder / "begin"));
  }();
  EXPECT_EQ(begun.status, 2);
  EXPECT_TRUE(holds(begun.err, "does not support prefixes")) << begun.err;
}

}  // namespace
}  // namespace mnemo::published_pairs_test
