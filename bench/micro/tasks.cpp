// The cost of additional learnable-memory tasks: the class rows of 1, 2, 4, 8 and 16 tasks in addition to the existing
// rows of a ViT-B/32 at 224, alternating in one run.
//   cmake --build --preset release --target bench_tasks && build/release/bench_tasks
// Every task has a class token, 5 memory tokens in each of 12 layers and 100 classes, combined by concatenation; fresh
// weights, float32, one thread. `times` is the median over rounds of (time with K tasks) / (time with one); `more` is
// the cost of one additional task, (times - 1) / (K - 1). `naive` runs the model itself, task by task. Time is the
// program's processor time.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <map>

#include "base/node.h"
#include "base/options.h"
#include "cli/process_settings.h"
#include "infer/task_classifier.h"
#include "models/model.h"
#include "models/options.h"

namespace {

using namespace mnemo;

constexpr int kRounds = 7;

double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::shared_ptr<models::Model> build(int64_t tasks) {
  base::Node node = base::parse_toml(
      "[backbone]\ntype = \"vit\"\nimage_size = [224, 224]\npatch_size = 32\ndim = 768\nnum_layers = 12\nnum_heads = "
      "12\n"
      "[head]\ntype = \"classification\"\nnum_classes = 1000\n[[memory]]\ntype = \"learnable_tokens\"\n",
      "benchmark");
  for (int64_t k = 0; k < tasks; ++k) {
    base::set_value(node, fmt::format("memory[0].tasks[{}].name=\"t{}\"", k, k));
    base::set_value(node, fmt::format("memory[0].tasks[{}].num_classes=100", k));
  }
  return std::make_shared<models::Model>(base::read_options<models::ModelOptions>(node), 0, at::kFloat);
}

/// The model with that many tasks, built on first use.
const infer::TaskClassifier& classifier(int64_t tasks) {
  static std::map<int64_t, std::unique_ptr<infer::TaskClassifier>> made;
  auto& one = made[tasks];
  if (!one) one = std::make_unique<infer::TaskClassifier>(build(tasks));
  return *one;
}

void run(const infer::TaskClassifier& classifier, const at::Tensor& pixels, bool naive) {
  const at::NoGradGuard no_grad;
  if (naive) {
    benchmark::DoNotOptimize(classifier.model().task_logits({.tokens = {}, .rows = {}, .pixels = pixels}));
  } else {
    benchmark::DoNotOptimize(classifier(pixels));
  }
}

void compare(benchmark::State& state, bool naive) {
  const int64_t tasks = state.range(0), batch = state.range(1);
  const infer::TaskClassifier &one = classifier(1), &many = classifier(tasks);
  const at::Tensor pixels = at::randn({batch, 3, 224, 224});
  run(one, pixels, false);
  run(many, pixels, naive);
  std::vector<double> ratios, times;
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
      double seconds[2];
      for (const int side : round % 2 == 0 ? std::array{0, 1} : std::array{1, 0}) {
        const double began = now();
        run(side == 0 ? one : many, pixels, side == 1 && naive);
        seconds[side] = now() - began;
      }
      ratios.push_back(seconds[1] / seconds[0]);
      times.push_back(seconds[1]);
    }
  }
  std::sort(ratios.begin(), ratios.end());
  std::sort(times.begin(), times.end());
  state.counters["times"] = ratios[ratios.size() / 2];
  state.counters["ms"] = 1e3 * times[times.size() / 2];
  if (tasks > 1) state.counters["more"] = (ratios[ratios.size() / 2] - 1) / static_cast<double>(tasks - 1);
}

void packed(benchmark::State& state) { compare(state, false); }
void naive(benchmark::State& state) { compare(state, true); }

}  // namespace

BENCHMARK(packed)
    ->ArgNames({"tasks", "batch"})
    ->ArgsProduct({{1, 2, 4, 8, 16}, {1, 8}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(naive)
    ->ArgNames({"tasks", "batch"})
    ->ArgsProduct({{16}, {1, 8}})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

int main(int argc, char** argv) {
  cli::apply_process_settings();
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
