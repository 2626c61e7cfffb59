#include <gtest/gtest.h>

#include "mnemo.h"
#include "tests/support/command_line.h"

// A published decoder writes as its own library does: the token in front of a text, and the one that ends it.
namespace mnemo::test {
namespace {

class PublishedWriting : public CommandLine {
 protected:
  PublishedWriting() {
    std::filesystem::copy(MNEMO_SOURCE_DIR "/tests/golden/data/text_import/llama", model_);
    write_tokenizer(R"({"SpecialToken": {"id": "<s>", "type_id": 0}},)");
  }
  /// 29 tokens: [UNK], <s>, </s> and the letters; `front`: what the template has in front of a text.
  void write_tokenizer(const std::string& front) const {
    std::string letters;
    for (char c = 'a'; c <= 'z'; ++c) letters += fmt::format(", \"{}\": {}", c, c - 'a' + 3);
    write(model_ + "/tokenizer.json", R"({"normalizer": {"type": "BertNormalizer"},
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {"type": "TemplateProcessing", "pair": [],
          "single": [)" + front + R"({"Sequence": {"id": "A", "type_id": 0}}],
          "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}}},
        "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "<s>": 1, "</s>": 2)" +
                                          letters + "}}}");
  }
  Finished generate(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"generate", model, "--quiet", "--temperature", "0", "-n", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  base::Node scored(const std::string& text) {
    write(folder_ / "given.txt", text);
    return json(run({"generate", model_, "--score", folder_ / "given.txt", "--json"}).out);
  }
  std::string model_ = folder_ / "llama";
};

TEST_F(PublishedWriting, TheEndTokenEndsATextUnlessItIsToGoOn) {
  std::string all;
  for (int id = 0; id < 29; ++id) all += fmt::format("{}{}", id == 0 ? "" : ", ", id);
  write(model_ + "/generation_config.json", "{\"eos_token_id\": [" + all + "]}");
  const std::string ours = folder_ / "ours";
  const Finished converted = run({"convert", model_, "--to", "mnemo", "--out", ours});
  ASSERT_EQ(converted.status, 0) << converted.err;
  for (const std::string& model : {model_, ours}) {
    EXPECT_EQ(generate(model, {"--prompt", "a b"}).out, "a b") << model;
    const base::Node ended = json(generate(model, {"--prompt", "a b", "--json"}).out);
    EXPECT_EQ(ended.at("tokens").as_int(), 0);
    EXPECT_TRUE(ended.at("stopped").as_bool());
    const base::Node on = json(generate(model, {"--prompt", "a b", "--json", "--no-stop"}).out);
    EXPECT_EQ(on.at("tokens").as_int(), 8);
    EXPECT_FALSE(on.at("stopped").as_bool());
    const Bundle bundle = load(model);
    EXPECT_EQ(bundle.generate("a b", {.max_tokens = 8, .temperature = 0}), "");
    EXPECT_EQ(bundle.generate("a b", {.max_tokens = 8, .temperature = 0, .past_end = true}), on.at("text").as_string());
  }
  write(model_ + "/generation_config.json", "{\"eos_token_id\": \"</s>\"}");
  const Finished refused = generate(model_, {"--prompt", "a b"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "llama/generation_config.json: 'eos_token_id': expected a token")) << refused.err;
}

TEST_F(PublishedWriting, TheTokenInFrontIsContextAndIsNotScored) {
  const base::Node begun = scored("a b");
  EXPECT_EQ(begun.at("predictions").as_int(), 2);
  ASSERT_EQ(begun.at("tokens").size(), 2u);
  EXPECT_FALSE(begun.at("tokens").items()[0].at("log_probability").is_null());
  const base::Node written = json(generate(model_, {"--prompt", "a b", "--no-stop", "--json"}).out);
  EXPECT_EQ(written.at("position").as_int(), 11) << "<s> a b and eight more";
  write_tokenizer("");
  const base::Node plain = scored("a b");
  EXPECT_EQ(plain.at("predictions").as_int(), 1);
  EXPECT_TRUE(plain.at("tokens").items()[0].at("log_probability").is_null());
  EXPECT_NE(plain.at("tokens").items()[1].at("log_probability"), begun.at("tokens").items()[1].at("log_probability"));
}

TEST_F(PublishedWriting, AConversationBeginsOnce) {
  const std::string session = folder_ / "session";
  write(folder_ / "input.txt", "a\nb\n");
  const std::string command = std::string("'") + kBinary + "' generate '" + model_ + "' --quiet --no-stop -n 4 " +
                              "--interactive --save '" + session + "' < '" + (folder_ / "input.txt") + "' > '" +
                              (folder_ / "output.txt") + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const base::Node more = json(generate(model_, {"--session", session, "--no-stop", "--json"}).out);
  EXPECT_EQ(more.at("position").as_int(), 1 + 2 + 8 + 8) << "<s>, two lines, what was written to them, and eight more";
}

}  // namespace
}  // namespace mnemo::test
