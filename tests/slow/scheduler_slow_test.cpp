// What the scheduler costs, and what a long prompt costs those who write beside it. It prints the figures that
// docs/generation.md quotes; those of a busy machine say nothing, so only what no noise explains is asserted.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>

#include "infer/scheduler.h"
#include "models/model.h"
#include "tests/support/pieces_tokenizer.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kWords = 8000;
const GenerateOptions kEndless{.max_tokens = int64_t{1} << 40, .temperature = 0};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::shared_ptr<const Engine> engine_of(ops::Precision precision) {
  models::ModelOptions options;
  options.embedding.vocab_size = kWords;
  options.segment_size = 256;
  options.backbone.stack().num_layers = 6;
  options.backbone.stack().dim = 512;
  options.backbone.stack().num_heads = 8;
  options.backbone.stack().ffn_dim = 2048;
  options.memory = {
      models::ModelOptions::memory_types().read(base::Node::table({{"type", "segment_cache"}, {"mem_len", 256}}))};
  return std::make_shared<const Engine>(models::build(options, 1), EngineOptions{precision});
}

TextSession fed(const std::shared_ptr<const Engine>& engine, int64_t seed) {
  TextSession text(Session(engine, kEndless), std::make_shared<test::PiecesTokenizer>(kWords));
  text.session().feed(at::randint(0, kWords, {20 + seed}, at::kLong));
  return text;
}

/// Tokens a second of Engine::run with the most likely token, of Scheduler::tick, in turns.
std::pair<double, double> speeds(const std::shared_ptr<const Engine>& engine, int64_t batch) {
  Scheduler scheduler(engine);
  std::vector<EngineSequence> sequences;
  std::vector<int64_t> tokens(static_cast<size_t>(batch), 1);
  std::vector<float> logits(static_cast<size_t>(batch * kWords));
  std::vector<Engine::Step> steps;
  for (int64_t i = 0; i < batch; ++i) {
    const TextSession text = fed(engine, 0);
    sequences.push_back(engine->import(text.session().state()));
    scheduler.submit(text, {}, kEndless);
  }
  for (size_t i = 0; i < sequences.size(); ++i)
    steps.push_back({&sequences[i], {&tokens[i], 1}, logits.data() + static_cast<int64_t>(i) * kWords});
  std::vector<double> run, tick;
  for (int round = 0; round < 15; ++round) {
    constexpr int kSteps = 12;
    double begin = now();
    for (int step = 0; step < kSteps; ++step) {
      engine->run(steps);
      for (size_t i = 0; i < tokens.size(); ++i) {
        const float* own = steps[i].logits;
        tokens[i] = std::max_element(own, own + kWords) - own;
      }
    }
    run.push_back(static_cast<double>(kSteps * batch) / (now() - begin));
    begin = now();
    for (int step = 0; step < kSteps; ++step) EXPECT_EQ(scheduler.tick().size(), static_cast<size_t>(batch));
    tick.push_back(static_cast<double>(kSteps * batch) / (now() - begin));
  }
  std::ranges::sort(run);
  std::ranges::sort(tick);
  return {run[run.size() / 2], tick[tick.size() / 2]};
}

TEST(SchedulerSlow, TicksAreAsFastAsTheEngine) {
  for (const ops::Precision precision : {ops::Precision::float32, ops::Precision::int8}) {
    const auto engine = engine_of(precision);
    for (const int64_t batch : {1, 4, 16}) {
      const auto [run, tick] = speeds(engine, batch);
      std::printf("%s, %ld sequences: run %.0f, tick %.0f tokens a second: %.3f\n",
                  std::string(ops::name_of(precision)).c_str(), static_cast<long>(batch), run, tick, tick / run);
      EXPECT_GT(tick / run, 0.8);
    }
  }
}

double percentile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

/// The processor's time, which other programs change less than the clock's.
double cpu_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The prompt alone, the writers alone and both together, in turns, so that a busy machine slows all three.
TEST(SchedulerSlow, ALongPromptBesideEightWriters) {
  constexpr int64_t kLong = 100'000;
  const at::Tensor tokens = at::randint(0, kWords, {kLong}, at::kLong);
  const std::vector<int64_t> prompt(tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + kLong);
  const auto seconds_of = [](const std::function<void()>& work) {
    const double begin = cpu_now();
    work();
    return cpu_now() - begin;
  };
  for (const ops::Precision precision : {ops::Precision::float32, ops::Precision::int8}) {
    const auto engine = engine_of(precision);
    Session alone(engine);
    Scheduler writers(engine), both(engine);
    for (Scheduler* scheduler : {&writers, &both}) {
      for (int64_t i = 0; i < 8; ++i) scheduler->submit(fed(engine, 30 * i), {}, kEndless);
      scheduler->tick();
    }
    const TextSession empty(Session(engine, kEndless), std::make_shared<test::PiecesTokenizer>(kWords));
    const auto id = both.submit(empty, {prompt}, kEndless);
    std::vector<double> gaps, beside;
    double seconds_alone = 0, seconds_beside = 0;
    for (int64_t read = 0; read < kLong;) {
      for (int i = 0; i < 16 && both.position(id) < kLong; ++i)
        seconds_beside += beside.emplace_back(seconds_of([&] { both.tick(); }));
      const int64_t more = std::min(kLong, *both.position(id)) - read;
      const auto part = std::span(prompt).subspan(static_cast<size_t>(read), static_cast<size_t>(more));
      seconds_alone += seconds_of([&] { alone.feed(part); });
      read += more;
      for (int i = 0; i < 4; ++i) gaps.push_back(seconds_of([&] { writers.tick(); }));
    }
    const double middle = percentile(beside, 0.5) / percentile(gaps, 0.5), late = seconds_beside / seconds_alone;
    std::printf(
        "%s: prompt alone %.1f s, beside 8 writers %.1f s (%.2f); gap p50 %.2f, p99 %.2f ms alone, %.2f (%.2f), "
        "%.2f (%.2f) ms beside\n",
        std::string(ops::name_of(precision)).c_str(), seconds_alone, seconds_beside, late, 1e3 * percentile(gaps, 0.5),
        1e3 * percentile(gaps, 0.99), 1e3 * percentile(beside, 0.5), middle, 1e3 * percentile(beside, 0.99),
        percentile(beside, 0.99) / percentile(gaps, 0.99));
    EXPECT_GE(both.running(), 9);
    EXPECT_LE(beside.size(), static_cast<size_t>(kLong / 16 + 8)) << "16 of 24 rows read the prompt";
    EXPECT_LT(middle, 3);
    EXPECT_LT(late, 2.6);
  }
}

}  // namespace
}  // namespace mnemo::infer
