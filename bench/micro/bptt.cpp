// The time and memory of `train.recompute = "segment"`, compared with storing everything, alternating in one run:
//   cmake --build --preset release --target bench_bptt && build/release/bench_bptt
// A training step, without the optimizer, of the RMT in `mnemo-bench`: 6 layers, width 256, 4 heads, segments of 128
// with 16 memory tokens, relative attention; one sequence, one thread. `times` is the median over 7 rounds of
// recomputing / storing. MB is the peak memory of tensors in addition to those that existed before the step
// (parameters, gradients, tokens).
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

#include "cli/process_settings.h"
#include "models/model.h"
#include "train/segment_bptt.h"

namespace {

using namespace mnemo;

constexpr int64_t kVocabulary = 65, kSegment = 128;

std::unique_ptr<models::Model> build_rmt(int64_t depth, double dropout) {
  base::Node node = base::parse_toml(
      "[embedding]\nvocab_size = 65\n[backbone]\nnum_layers = 6\ndim = 256\nnum_heads = 4\nffn_dim = 1024\n"
      "norm = \"pre\"\nfinal_norm = true\nattention.type = \"relative\"\n"
      "[[memory]]\ntype = \"recurrent_tokens\"\nnum_mem_tokens = 16\n",
      "benchmark");
  base::set_value(node, fmt::format("backbone.dropout={}", dropout));
  if (depth >= 0) base::set_value(node, fmt::format("memory[0].bptt_depth={}", depth));
  return models::build(base::read_options<models::ModelOptions>(node), 0);
}

/// Computes the gradients of one step over `count` segments.
class Step {
 public:
  Step(const core::Model& model, int64_t count) : model_(model), share_(1.0 / static_cast<double>(count)) {
    for (int64_t s = 0; s < count; ++s) {
      core::Segment segment;
      segment.tokens = at::randint(0, kVocabulary, {1, kSegment}, at::kLong);
      segment.mode = core::Mode::train;
      segments_.push_back({segment, {}});
      targets_.push_back(at::randint(0, kVocabulary, {1, kSegment}, at::kLong));
    }
  }
  double seconds(int64_t stored_bytes) const {
    const auto began = std::chrono::steady_clock::now();
    run(stored_bytes);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  int64_t peak_bytes(int64_t stored_bytes) const {
    const train::TensorMeter meter;
    run(stored_bytes);
    return meter.peak();
  }

 private:
  void run(int64_t stored_bytes) const {
    train::backward_segments(
        model_, segments_, model_.initial_state(1),
        [&](const core::StepResult& step, size_t index) {
          return model_.nll(step.hidden, targets_[index]).mean() * share_;
        },
        train::BpttForm::sliding, stored_bytes);
  }

  const core::Model& model_;
  double share_;
  std::vector<train::BpttSegment> segments_;
  std::vector<at::Tensor> targets_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// segments, bptt_depth (-1: full), dropout in per cent
void recompute(benchmark::State& state) {
  const auto model = build_rmt(state.range(1), static_cast<double>(state.range(2)) / 100);
  const Step step(*model, state.range(0));
  Step(*model, 1).seconds(train::kStoreAll);  // creates the gradients that later steps add to
  constexpr double kMegabyte = 1e6;
  state.counters["MB_storing"] = static_cast<double>(step.peak_bytes(train::kStoreAll)) / kMegabyte;
  state.counters["MB"] = static_cast<double>(step.peak_bytes(0)) / kMegabyte;
  std::vector<double> ratios;
  for (auto _ : state) {
    const double storing = step.seconds(train::kStoreAll), again = step.seconds(0);
    ratios.push_back(again / storing);
    state.SetIterationTime(again);
  }
  state.counters["times"] = median(ratios);
}

}  // namespace

BENCHMARK(recompute)
    ->ArgNames({"segments", "depth", "dropout"})
    ->Args({2, -1, 0})
    ->Args({16, -1, 0})
    ->Args({64, -1, 0})
    ->Args({16, -1, 10})
    ->Args({16, 1, 0})
    ->Args({16, 2, 0})
    ->Args({16, 4, 0})
    ->Iterations(7)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

int main(int argc, char** argv) {
  cli::apply_process_settings();
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
