// Warnings of parameters and memories that no gradient reaches.
#include <signal.h>
#include <torch/types.h>

#include "base/log.h"
#include "tests/unit/train/trainer_run.h"

namespace mnemo::train {
namespace {

using base::Node;

TEST_F(TrainerTest, ParametersWithoutAGradientAreNamedOnce) {
  const auto log_of = [&](int64_t segments, const std::vector<Node>& memory, bool frozen) {
    TrainOptions options = small_options();
    options.steps = 12;
    options.segments_per_step = segments;
    Run run = make(options, memory);
    if (frozen) {
      for (const layers::Parameter& parameter : run.model->parameters().all()) {
        if (parameter.name.find("gate") != std::string::npos || parameter.name.find("candidate") != std::string::npos)
          at::Tensor(parameter.tensor).set_requires_grad(false);
      }
    }
    std::string log;
    const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
    run.trainer->run(quiet());
    return log;
  };
  // The gates write what the next segment reads: with one segment a step no loss is behind them.
  const std::vector<Node>& grc = memories().at("grc");
  const std::string log = log_of(1, grc, false);
  for (const char* name : {"warning: ", "no gradient reaches 6 of ", "attn.grc.reset_gate.weight",
                           "attn.grc.update_gate.bias", "attn.grc.candidate.weight", "segments_per_step"})
    EXPECT_NE(log.find(name), std::string::npos) << name << " in: " << log;
  EXPECT_EQ(log.find("no gradient"), log.rfind("no gradient")) << log;
  EXPECT_EQ(log.find("grc.lambda"), std::string::npos) << log;
  EXPECT_EQ(log_of(2, grc, false).find("no gradient"), std::string::npos);
  EXPECT_EQ(log_of(1, {}, false).find("no gradient"), std::string::npos);
  EXPECT_EQ(log_of(1, grc, true).find("no gradient"), std::string::npos) << "frozen on purpose";
}

TEST_F(TrainerTest, AMemoryThatCannotLearnToWriteIsNamedBeforeTheFirstStep) {
  const std::string about = "nothing learns what to remember";
  int64_t runs = 0;
  const auto log_of = [&](int64_t segments, int64_t replay, const std::vector<Node>& memory, bool resumes) {
    TrainOptions options = small_options();
    options.steps = 12;
    options.segments_per_step = segments;
    options.replay = replay;
    const std::string folder = folder_ / fmt::format("run{}", runs++);
    std::string log;
    const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
    Run first = make(options, memory, folder);
    first.trainer->run(quiet([&] { return resumes && first.trainer->steps_done() == 2 ? SIGTERM : 0; }));
    if (!resumes) return log;
    log.clear();
    Run second = make(options, memory, folder);
    EXPECT_TRUE(second.trainer->resume_latest());
    second.trainer->run(quiet());
    return log;
  };
  const std::vector<Node> rmt = {Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 1}})};
  for (const bool resumes : {false, true}) {
    SCOPED_TRACE(resumes);
    // After a resume no stream begins a document, so the initial memory has no gradient; it is healthy all the same.
    EXPECT_EQ(log_of(2, 0, rmt, resumes).find("warning"), std::string::npos);
    const std::string cut = log_of(1, 0, rmt, resumes);
    EXPECT_NE(cut.find(about), std::string::npos) << cut;
    EXPECT_NE(cut.find("wrote recurrent_tokens.tokens"), std::string::npos) << cut;
    EXPECT_EQ(log_of(1, 2, rmt, resumes).find(about), std::string::npos) << "a replay reads more than one";
    EXPECT_EQ(log_of(1, 0, memories().at("segment cache"), resumes).find(about), std::string::npos);
  }
  const std::vector<Node> depth_0 = {
      Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 0}})};
  const std::string without = log_of(3, 0, depth_0, false);
  EXPECT_NE(without.find("expected a bptt_depth of 1 or more, found 0"), std::string::npos) << without;
  // Once, not for its parameters again.
  const std::vector<Node> grc = {
      Node::table({{"type", "grc"}, {"cache_len", 4}, {"lifetime", "sequence"}, {"bptt_depth", 1}})};
  const std::string once = log_of(1, 0, grc, false);
  EXPECT_NE(once.find("no gradient reaches the segment that wrote"), std::string::npos) << once;
  EXPECT_EQ(once.find("no gradient"), once.rfind("no gradient")) << once;
}

}  // namespace
}  // namespace mnemo::train
