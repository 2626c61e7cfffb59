// Single operations under Google Benchmark:
//   cmake --build --preset release --target bench_kernels && build/release/bench_kernels --benchmark_filter=abc
// One thread; sizes are those of the 6-layer, 256-wide models of `mnemo bench` (4 heads of 64, batch 4) where nothing else is said.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "core/state.h"
#include "memory/abc.h"
#include "memory/segment_cache.h"
#include "ops/abc.h"
#include "ops/grc.h"
#include "ops/position.h"

namespace {

using namespace mnemo;

constexpr int64_t kBatch = 4, kHeads = 4, kWidth = 64, kDim = kHeads * kWidth;

at::Tensor random(at::IntArrayRef shape, bool gradient = false) { return at::randn(shape).set_requires_grad(gradient); }

/// Tokens a second beside the time.
void count_tokens(benchmark::State& state, int64_t tokens) { state.SetItemsProcessed(state.iterations() * tokens); }

struct AbcInputs {
  AbcInputs(int64_t slots, int64_t time, bool gradient)
      : q(random({kBatch, kHeads, time, kWidth}, gradient)),
        k(random({kBatch, kHeads, time, kWidth}, gradient)),
        v(random({kBatch, kHeads, time, kWidth}, gradient)),
        s(random({kBatch, kHeads, time, slots}, gradient)),
        memory(ops::abc_empty(kBatch, kHeads, slots, kWidth, ops::AbcActivation::exp, at::TensorOptions(at::kFloat))) {}
  at::Tensor run() const { return ops::abc_causal(q, k, v, s, memory, {}, ops::AbcActivation::exp, 1e-6, 0.125).o; }
  at::Tensor q, k, v, s;
  ops::AbcMemory memory;
};

void abc_forward(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const AbcInputs inputs(state.range(0), state.range(1), false);
  for (auto _ : state) benchmark::DoNotOptimize(inputs.run());
  count_tokens(state, kBatch * state.range(1));
}

void abc_forward_and_backward(benchmark::State& state) {
  const AbcInputs inputs(state.range(0), state.range(1), true);
  const at::Tensor weight = random({kBatch, kHeads, state.range(1), kWidth});
  for (auto _ : state) {
    benchmark::DoNotOptimize(torch::autograd::grad({inputs.run()}, {inputs.q, inputs.k, inputs.v, inputs.s}, {weight}));
  }
  count_tokens(state, kBatch * state.range(1));
}

void abc_token(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const AbcInputs inputs(state.range(0), 1, false);
  for (auto _ : state) benchmark::DoNotOptimize(inputs.run());
  count_tokens(state, kBatch);
}

void grc_step(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const int64_t rows = state.range(0), width = kDim / 2;
  const ops::GrcGates gates{random({width, 2 * width}), random({width}), random({width, 2 * width}), random({width}),
                            random({width, 2 * width}), random({width}), {}, {}};
  const at::Tensor cache = random({kBatch, rows, width}), input = random({kBatch, rows, width});
  for (auto _ : state) benchmark::DoNotOptimize(ops::grc_step(cache, input, gates, false));
}

/// A table that stands already, as in every call but the first.
void distance_sinusoids(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(ops::distance_sinusoids(256, state.range(0), false, 0, kDim, at::TensorOptions(at::kFloat)));
  }
}

/// What a server keeps of a sequence: six layers of a segment cache of 256 rows, or of 32 slots.
core::State segment_cache_state(int64_t batch) {
  memory::SegmentCacheState state;
  for (int64_t layer = 0; layer < 6; ++layer) state.rows.push_back(random({batch, 256, kDim}));
  state.valid = at::ones({batch, 256}, at::kBool);
  return core::State::list({{"segment_cache", state}});
}

core::State abc_state(int64_t batch) {
  core::State::Children layers;
  for (int64_t layer = 0; layer < 6; ++layer) {
    layers.emplace_back(std::to_string(layer), memory::AbcState{random({batch, kHeads, 32, kWidth}), random({batch, kHeads, 32, kWidth}),
                                                                random({batch, kHeads, 32})});
  }
  return core::State::list(std::move(layers));
}

template <core::State (*make)(int64_t)>
void select_batch(benchmark::State& state) {
  const core::State all = make(state.range(0));
  const at::Tensor rows = at::arange(state.range(0), at::kLong).flip(0);
  for (auto _ : state) benchmark::DoNotOptimize(core::select_batch(all, rows));
  state.SetBytesProcessed(state.iterations() * core::num_bytes(all));
}

template <core::State (*make)(int64_t)>
void concat_batch(benchmark::State& state) {
  std::vector<core::State> parts;
  for (int64_t i = 0; i < state.range(0); ++i) parts.push_back(make(1));
  for (auto _ : state) benchmark::DoNotOptimize(core::concat_batch(parts));
  state.SetBytesProcessed(state.iterations() * state.range(0) * core::num_bytes(parts.front()));
}

BENCHMARK(abc_forward)->ArgsProduct({{32, 64}, {512, 2048}})->ArgNames({"slots", "T"})->Unit(benchmark::kMillisecond);
BENCHMARK(abc_forward_and_backward)->ArgsProduct({{32, 64}, {512, 2048}})->ArgNames({"slots", "T"})->Unit(benchmark::kMillisecond);
BENCHMARK(abc_token)->Arg(32)->Arg(64)->ArgName("slots")->Unit(benchmark::kMicrosecond);
BENCHMARK(grc_step)->Arg(16)->Arg(64)->Arg(256)->ArgName("rows")->Unit(benchmark::kMicrosecond);
BENCHMARK(distance_sinusoids)->Arg(512)->Arg(4096)->ArgName("keys")->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(select_batch, segment_cache_state)->Arg(1)->Arg(8)->ArgName("B")->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(select_batch, abc_state)->Arg(1)->Arg(8)->ArgName("B")->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(concat_batch, segment_cache_state)->Arg(8)->ArgName("B")->Unit(benchmark::kMicrosecond);
BENCHMARK_TEMPLATE(concat_batch, abc_state)->Arg(8)->ArgName("B")->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  at::manual_seed(0);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
