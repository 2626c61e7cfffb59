#include "serve/completion_request.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace mnemo::serve {
namespace {

CompletionRequest read(const std::string& members, const RequestLimits& limits = {}) {
  return read_completion("{" + members + "}", limits);
}

/// The parameter that a request is refused for.
std::string refused(const std::string& members, const RequestLimits& limits = {}) {
  try {
    read(members, limits);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_NE(std::string(error.what()), "");
    return error.param.empty() ? "?" : error.param;
  }
  return "";
}

TEST(CompletionRequest, HasTheDefaultsOfTheApi) {
  const CompletionRequest request = read(R"("model": "m", "prompt": "Once", "user": "u", "suffix": null)");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(std::get<std::string>(request.prompts.at(0)), "Once");
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.stream || request.echo || request.include_usage);
  const infer::GenerateOptions options = request.options({.temperature = 1});
  EXPECT_EQ(options.temperature, 1.0);
  EXPECT_EQ(options.max_tokens, 16);
}

TEST(CompletionRequest, ReadsEveryFormOfAPrompt) {
  EXPECT_EQ(std::get<std::vector<int64_t>>(read(R"("prompt": [3, 1])").prompts.at(0)), (std::vector<int64_t>{3, 1}));
  const auto several = read(R"("prompt": ["a", [2], "c"])").prompts;
  EXPECT_EQ(several.size(), 3u);
  EXPECT_EQ(std::get<std::vector<int64_t>>(several[1]), std::vector<int64_t>{2});
  for (const char* wrong : {R"([])", R"({"a": 1})", R"(["a", 1])", R"([1, "a"])", "true", "[[1.5]]",
                            R"(["1","2","3","4","5","6","7","8","9"])"})
    EXPECT_EQ(refused(fmt::format("\"prompt\": {}", wrong)), "prompt") << wrong;
  EXPECT_EQ(refused(""), "prompt");
}

TEST(CompletionRequest, TakesSamplingOverWhatASessionHas) {
  const CompletionRequest request = read(R"("prompt": "a", "top_k": 5, "seed": 9, "stop": "\n", "max_tokens": 3)");
  const infer::GenerateOptions options = request.options({.temperature = 0.5, .repetition_penalty = 1.5, .seed = 1});
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.repetition_penalty, 1.5);
  EXPECT_EQ(options.top_k, 5);
  EXPECT_EQ(options.seed, 9);
  EXPECT_EQ(options.stop, std::vector<std::string>{"\n"});
  // Clients send both; at temperature 0 the others have no effect.
  EXPECT_EQ(read(R"("prompt": "a", "temperature": 0, "top_p": 0.5)").options({.top_k = 4}).top_p, 1.0);
}

TEST(CompletionRequest, RefusesByParameter) {
  const std::vector<std::pair<std::string, std::string>> wrong = {{"max_tokens", "-1"},
                                                                  {"max_tokens", "5000"},
                                                                  {"max_tokens", "\"3\""},
                                                                  {"n", "9"},
                                                                  {"n", "0"},
                                                                  {"logprobs", "6"},
                                                                  {"logprobs", "true"},
                                                                  {"echo", "1"},
                                                                  {"stream", "\"yes\""},
                                                                  {"stop", "[\"a\", \"b\", \"c\", \"d\", \"e\"]"},
                                                                  {"stop", "\"\""},
                                                                  {"stop", "7"},
                                                                  {"temperature", "-0.1"},
                                                                  {"temperature", "\"hot\""},
                                                                  {"top_p", "0"},
                                                                  {"top_p", "1.5"},
                                                                  {"seed", "-1"},
                                                                  {"frequency_penalty", "3"},
                                                                  {"presence_penalty", "-3"},
                                                                  {"min_p", "2"},
                                                                  {"repetition_penalty", "0"},
                                                                  {"top_k", "-1"},
                                                                  {"stream_options", "true"},
                                                                  {"stream_options", "{\"include_usage\": true}"},
                                                                  {"user", "3"},
                                                                  {"model", "3"},
                                                                  {"suffix", "\"x\""},
                                                                  {"best_of", "2"},
                                                                  {"if_position", "3"},
                                                                  {"keep_partial", "true"},
                                                                  {"n\\u0000ew", "1"}};
  for (const auto& [key, value] : wrong) {
    const std::string found = refused(fmt::format("\"prompt\": \"a\", \"{}\": {}", key, value));
    EXPECT_EQ(found.substr(0, 1), key.substr(0, 1)) << key << " " << value << " " << found;
    if (key.find('\\') == std::string::npos) {
      EXPECT_EQ(found, key) << value;
    }
  }
  try {
    read_completion(R"({"prompt": "a", "max_token": 3})", {});
    ADD_FAILURE() << "max_token was read";
  } catch (const ApiError& error) {
    EXPECT_STREQ(error.what(), "'max_token' is not supported; did you mean 'max_tokens'?");
  }
  EXPECT_EQ(refused(R"("prompt": "a", "echo": true, "logprobs": 1)"), "echo");
  EXPECT_EQ(refused(R"("prompt": ["a", "b"], "session": "s")"), "prompt");
  EXPECT_EQ(refused(R"("prompt": "a", "n": 2, "session": "s")"), "n");
  EXPECT_EQ(refused(R"("prompt": "a", "best_of": 2)", {.lenient = true}), "");
  EXPECT_EQ(refused(R"("prompt": "a", "stream": true, "stream_options": {"x": 1})"), "stream_options");
  EXPECT_EQ(refused(R"("prompt": "a", "stream": true, "stream_options": {"x": 1})", {.lenient = true}), "");
  EXPECT_EQ(refused(R"("prompt": "a", "max_tokens": 5000)", {.max_tokens = 5000}), "");
}

TEST(CompletionRequest, RefusesASeedWithoutRoomForTheOthers) {
  const auto with = [](const char* members) { return refused(fmt::format(R"("prompt": "a", {})", members)); };
  EXPECT_EQ(with(R"("seed": 9223372036854775807)"), "");
  EXPECT_EQ(with(R"("seed": 9223372036854775806, "n": 2)"), "");
  EXPECT_EQ(with(R"("seed": 9223372036854775807, "n": 2)"), "seed");
  EXPECT_EQ(with(R"("seed": 9223372036854775801, "n": 8)"), "seed");
}

TEST(CompletionRequest, RefusesWhatIsNoObjectOrTooDeep) {
  for (const std::string& body :
       {std::string(""), std::string("[]"), std::string("\"a\""), std::string("{\"prompt\": \"\xff\"}"),
        "{\"prompt\": " + std::string(40, '[') + std::string(40, ']') + "}", std::string("{\"prompt\": \"a\"} x"),
        std::string("{\"prompt\": \"a\", \"prompt\": \"b\"}"), std::string("{\"n\": 99999999999999999999}")})
    EXPECT_THROW(read_completion(body, {}), ApiError) << body;
}

}  // namespace
}  // namespace mnemo::serve
