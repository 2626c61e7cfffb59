#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "tests/support/command_line.h"
#include "weights/safetensors.h"

namespace mnemo::test {
namespace {

constexpr size_t kPositions = 100;

/// `mnemo generate` beyond one plain text: docs/generation.md.
class Writing : public CommandLine {
 protected:
  Finished generate(std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", model_, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// With `input` as standard input.
  std::string piped(const std::string& input, const std::string& more) {
    write(folder_ / "input.txt", input);
    const std::string command = std::string("'") + kBinary + "' generate '" + model_ + "' --quiet " + more + " < '" +
                                (folder_ / "input.txt") + "' > '" + (folder_ / "output.txt") + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return content(folder_ / "output.txt");
  }
  std::string model_ = trained("run") + "/model";
};

TEST_F(Writing, SamplesHaveTheSeedsThatTheyName) {
  const Finished both = generate({"--prompt", "line", "-n", "20", "--seed", "7", "--num-samples", "2"});
  const std::string first = generate({"--prompt", "line", "-n", "20", "--seed", "7"}).out,
                    second = generate({"--prompt", "line", "-n", "20", "--seed", "8"}).out;
  EXPECT_NE(first, second);
  EXPECT_EQ(both.out, "--- sample 1 of 2, seed 7 ---\n" + first + "\n--- sample 2 of 2, seed 8 ---\n" + second + "\n");
  const base::Node node = json(
      generate({"--prompt", "line", "-n", "20", "--seed", "7", "--num-samples", "2", "--json"}).out);
  EXPECT_EQ("line" + node.at("samples").items()[1].at("text").as_string(), second);
  EXPECT_EQ(node.at("samples").items()[1].at("seed").as_int(), 8);
}

TEST_F(Writing, LogitsAreThoseOfTheTextsThatAreWrittenAndScored) {
  const std::string file = folder_ / "logits.safetensors", text = "line 12 of a small";
  const Finished outcome = generate({"--prompt", text, "--logits", file});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(holds(outcome.out, "tokens [18] and logits [18,")) << outcome.out;
  const weights::TensorFile found = weights::read_safetensors(file);
  const at::Tensor tokens = found.at("tokens", file), logits = found.at("logits", file);
  ASSERT_EQ(logits.scalar_type(), at::kFloat);
  ASSERT_EQ(tokens.size(0), 18);
  write(folder_ / "text.txt", text);
  const base::Node scored = json(generate({"--score", folder_ / "text.txt", "--json"}).out).at("tokens");
  const at::Tensor shares = at::log_softmax(logits.to(at::kDouble), 1);
  for (int64_t i = 0; i < 18; ++i) {
    const base::Node& token = scored.items()[static_cast<size_t>(i)];
    EXPECT_EQ(tokens[i].item<int64_t>(), token.at("id").as_int());
    if (i > 0) {
      EXPECT_NEAR(shares[i - 1][token.at("id").as_int()].item<double>(), token.at("log_probability").as_double(), 1e-5);
    }
  }
  const std::string next = generate({"--prompt", text, "-n", "1", "--temperature", "0"}).out.substr(text.size());
  write(folder_ / "next.txt", text + next);
  const base::Node all = json(generate({"--score", folder_ / "next.txt", "--json"}).out).at("tokens");
  EXPECT_EQ(logits[17].argmax().item<int64_t>(), all.items()[18].at("id").as_int());
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--logits", file},
                                             {"--prompt", text, "--logits", file, "-n", "4"},
                                             {"--prompt", text, "--logits", file, "--interactive"}})
    EXPECT_EQ(generate(wrong).status, 2);
}

TEST_F(Writing, AStopTextIsNotPrinted) {
  const std::string all = generate({"--prompt", "line", "-n", "200"}).out;
  const std::string stop = all.substr(100, 3);
  const base::Node node = json(generate({"--prompt", "line", "-n", "200", "--stop", stop, "--json"}).out);
  EXPECT_EQ("line" + node.at("text").as_string(), all.substr(0, all.find(stop, 4)));
  EXPECT_TRUE(node.at("stopped").as_bool());
  EXPECT_FALSE(json(generate({"--prompt", "line", "-n", "20", "--json"}).out).at("stopped").as_bool());
}

TEST_F(Writing, AConversationIsOneSession) {
  const std::string more = "-n 12 --seed 3 ", session = folder_ / "session";
  const std::string talk = piped("line 1\n\nline 2\n", more + "--interactive --save '" + session + "'");
  // Saved and continued sessions write the same.
  const auto step = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-n", "12", "--save", folder_ / "steps"});
    return generate(words).out;
  };
  std::string expected = step({"--prompt", "line 1\n", "--seed", "3"}).substr(7) + "\n";
  expected += step({"--session", folder_ / "steps"}) + "\n";
  expected += step({"--session", folder_ / "steps", "--prompt", "line 2\n"}) + "\n";
  EXPECT_EQ(talk, expected);
  EXPECT_EQ(generate({"--session", session, "-n", "9"}).out, generate({"--session", folder_ / "steps", "-n", "9"}).out);
}

TEST_F(Writing, ASignalEndsATextThatIsSaved) {
  const std::string session = folder_ / "session", out = folder_ / "stdout.txt";
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    std::filesystem::remove(out);
    Process process(folder_,
                    {"generate", model_, "--prompt", "line", "-n", "16777216", "--save", session, "--seed", "3"});
    ASSERT_TRUE(wait_for([&] { return content(out).size() > 20; }));
    process.signal(number);
    const Finished stopped = process.finish();
    EXPECT_EQ(stopped.status, status) << stopped.err;
    EXPECT_TRUE(holds(stopped.err, "stopping after this token; again to stop now")) << stopped.err;
    EXPECT_TRUE(holds(stopped.err, "the session so far is saved in " + session)) << stopped.err;
    // The text goes on as if it had never stopped.
    const std::string text = stopped.out, more = generate({"--session", session, "-n", "30"}).out;
    const auto tokens = std::to_string(text.size() + 30 - 4);
    EXPECT_EQ(generate({"--prompt", "line", "-n", tokens, "--seed", "3"}).out, text + more);
  }
}

TEST_F(Writing, ASignalEndsAConversationThatIsSaved) {
  const std::string session = folder_ / "session";
  // The input stays open, so that the signal comes while the program waits for a line.
  const auto until = [](const std::string& test) {
    return "for i in $(seq 600); do [ " + test + " ] && break; sleep 0.1; done";
  };
  const std::string command = "cd '" + (folder_ / ".") + "'; mkfifo lines; (echo 'line 1'; " + until("-e session") +
                              ") > lines & '" + kBinary + "' generate '" + model_ +
                              "' --interactive -n 5 --save session < lines > said 2> log & pid=$!; " +
                              until("-s said") + "; kill -INT $pid; wait $pid";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_TRUE(holds(content(folder_ / "log"), "the session so far is saved in session")) << content(folder_ / "log");
  EXPECT_EQ(generate({"--session", session, "-n", "5"}).status, 0);
}

TEST_F(Writing, ScoresAreThoseOfTheEvaluation) {
  const base::Node whole = json(generate({"--score", text_, "--json"}).out);
  const base::Node measured = json(run({"eval", model_, "--data", text_, "--precision", "float32", "--json"}).out);
  EXPECT_EQ(whole.at("predictions").as_int(), measured.at("predictions").as_int());
  EXPECT_NEAR(whole.at("nll").as_double(), measured.at("nll").as_double(), 1e-5);
  EXPECT_TRUE(whole.at("tokens").items()[0].at("log_probability").is_null());
  EXPECT_EQ(whole.at("tokens").items()[0].at("text").as_string(), "l");
  EXPECT_EQ(piped("line", "--score - --json"),
            (write(folder_ / "line.txt", "line"), generate({"--score", folder_ / "line.txt", "--json"}).out));
  const std::string table = generate({"--score", folder_ / "line.txt"}).out;
  EXPECT_TRUE(table.starts_with("              \"l\"\n")) << table;
  EXPECT_TRUE(holds(table, "of 3 predicted tokens: ")) << table;
  write(folder_ / "empty.txt", "");
  EXPECT_TRUE(holds(generate({"--score", folder_ / "empty.txt"}).err, "empty.txt: the text is empty"));
}

TEST_F(Writing, WhatDoesNotGoTogetherIsRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--interactive", "--num-samples", "2"}, "expected one of --interactive, --num-samples, --score and --logits"},
      {{"--interactive", "--json"}, "leave --json out"},
      {{"--interactive", "--prompt-file", "-"}, "both read standard input"},
      {{"--score", text_, "-n", "3"}, "--score writes no text, so --tokens has no effect; leave it out"},
      {{"--score", text_, "--stop", "a"}, "so --stop has no effect"},
      {{"--score", text_, "--no-stop"}, "so --no-stop has no effect"},
      {{"--score", text_, "--temperature", "0.5"}, "so --temperature has no effect"},
      {{"--score", text_, "--seed", "0"}, "so --seed has no effect"},
      {{"--score", text_, "--sample-unknown"}, "so --sample-unknown has no effect"},
      {{"--score", "-", "--prompt-file", "-"}, "--score - and --prompt-file - both read standard input"},
      {{"--num-samples", "2", "--save", "x"}, "leave --num-samples out"},
      {{"--num-samples", "2", "--temperature", "0"}, "all samples would be equal"},
      {{"--num-samples", "0"}, "--num-samples: expected 1 to 65536, found 0"},
      {{"--min-p", "2"}, "generate: 'sampling.min_p': expected 0 to 1"},
      {{"--repetition-penalty", "0"}, "'sampling.repetition_penalty'"},
      {{"--stop", ""}, "'stop"},
  };
  for (const auto& [words, part] : cases) {
    const Finished refused = generate(words);
    EXPECT_EQ(refused.status, 2) << words[0];
    EXPECT_TRUE(holds(refused.err, part)) << refused.err;
  }
}

TEST_F(Writing, ATextEndsWhereTheModelsPositionsDo) {
  std::string documents;
  for (int i = 0; i < 80; ++i) documents += "line " + std::to_string(i) + " of a small text\n\n";
  write(text_, documents);
  model_ = trained("table", {"--set", "data.document_separator=blank_line", "--set", "model.memory=[]", "--set",
                             "generate.sample_every=2", "--set",
                             "model.backbone.attention={type=\"abc\", num_slots=4, control={type=\"linformer\", "
                             "max_len=" +
                                 std::to_string(kPositions) + "}}"}) +
           "/model";
  const std::string samples = content(folder_ / "table/samples.jsonl");
  const base::Node sample = json(samples.substr(0, samples.find('\n')));
  EXPECT_EQ(sample.at("prompt").as_string().size() + sample.at("sample").as_string().size(), kPositions);

  const Finished whole = generate({"--prompt", "line", "-n", "500"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out.size(), kPositions);
  EXPECT_TRUE(holds(whole.err, "the model has no positions for a longer one")) << whole.err;
  const std::string session = folder_ / "session";
  const std::string said = piped("line\nline\n" + std::string(kPositions, '1') + "\n",
                                 "--interactive -n 500 --save '" + session + "'");
  EXPECT_EQ(said.size(), kPositions - 5 + 1) << "the line and its end are read, and the rest is written";
  const Finished more = generate({"--session", session, "-n", "1"});
  EXPECT_EQ(more.status, 2);
  EXPECT_TRUE(holds(more.err, "takes sequences of at most")) << more.err;
}

}  // namespace
}  // namespace mnemo::test
