// Single operations with Google Benchmark:
//   cmake --build --preset release --target bench_kernels && build/release/bench_kernels --benchmark_filter=abc
// One thread. Unless stated otherwise, sizes are those of the models with 6 layers and width 256 in `mnemo-bench` (4
// heads of 64, batch 4).
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "base/node.h"
#include "core/append_rows.h"
#include "core/state.h"
#include "memory/abc.h"
#include "memory/abc_control/mlp.h"
#include "memory/segment_cache.h"
#include "ops/abc/abc.h"
#include "ops/attention/attention.h"
#include "ops/attention/position.h"
#include "ops/grc/grc.h"
#include "ops/naive/attention.h"

namespace {

using namespace mnemo;

constexpr int64_t kBatch = 4, kHeads = 4, kWidth = 64, kDim = kHeads * kWidth;

at::Tensor random(at::IntArrayRef shape, bool gradient = false) { return at::randn(shape).set_requires_grad(gradient); }

/// Reports tokens per second in addition to time.
void count_tokens(benchmark::State& state, int64_t tokens) { state.SetItemsProcessed(state.iterations() * tokens); }

/// Causal attention over `keys` keys, of which the last `queries` belong to the queries; relative: with the terms of
/// Transformer-XL.
struct AttentionInputs {
  AttentionInputs(bool relative, int64_t queries, int64_t keys, bool gradient)
      : q(random({kBatch, kHeads, queries, kWidth}, gradient)),
        k(random({kBatch, kHeads, keys, kWidth}, gradient)),
        v(random({kBatch, kHeads, keys, kWidth}, gradient)),
        u(random({kHeads, kWidth}, gradient)),
        r(random({keys, kHeads, kWidth}, gradient)),
        ranges(ops::KeyRanges::causal(queries, keys)),
        relative(relative) {}
  at::Tensor run() const {
    return ops::attention(q, k, v, relative ? ops::Positions{u, u, r, {}} : ops::Positions{}, ranges, 0.125);
  }
  /// The naive twin: computes the whole score matrix.
  at::Tensor run_naive() const {
    const at::Tensor position = relative ? at::matmul(q + u.unsqueeze(1), r.permute({1, 2, 0})) : at::Tensor();
    return ops::attention_naive(relative ? q + u.unsqueeze(1) : q, k, v, position,
                                relative ? ops::RelShift::signed_ : ops::RelShift::none, ranges.mask(), 0.125);
  }
  std::vector<at::Tensor> leaves() const { return relative ? std::vector{q, k, v, u, r} : std::vector{q, k, v}; }
  at::Tensor q, k, v, u, r;
  ops::KeyRanges ranges;
  bool relative;
};

template <bool relative, at::Tensor (AttentionInputs::*run)() const>
void attention_forward(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const AttentionInputs inputs(relative, state.range(0), state.range(1), false);
  for (auto _ : state) benchmark::DoNotOptimize((inputs.*run)());
  count_tokens(state, kBatch * state.range(0));
}

template <bool relative, at::Tensor (AttentionInputs::*run)() const>
void attention_forward_and_backward(benchmark::State& state) {
  const AttentionInputs inputs(relative, state.range(0), state.range(1), true);
  const at::Tensor weight = random({kBatch, kHeads, state.range(0), kWidth});
  for (auto _ : state) benchmark::DoNotOptimize(torch::autograd::grad({(inputs.*run)()}, inputs.leaves(), {weight}));
  count_tokens(state, kBatch * state.range(0));
}

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

/// A training step of one ABC attention, including its four projections.
void abc_control(benchmark::State& state, const char* toml) {
  layers::ParameterSet parameters(0, at::kFloat);
  const layers::Scope root = parameters.root();
  const auto options = base::read_options<memory::AbcOptions>(base::parse_toml(toml, "benchmark"));
  const memory::Abc abc(options, {root, root, root, kDim, kHeads, kWidth, true, 0.02, 0});
  const at::Tensor x = random({kBatch, state.range(0), kDim}, true), weight = random({kBatch, state.range(0), kDim});
  const core::AttendTable table({core::SpanKind::tokens, state.range(0)});
  std::vector<at::Tensor> leaves = {x};
  for (const auto& parameter : parameters.all()) leaves.push_back(parameter.tensor);
  for (auto _ : state) {
    const auto out = abc.forward({x, {}, table, core::Mode::train}, abc.initial_state(kBatch));
    benchmark::DoNotOptimize(torch::autograd::grad({out.y}, leaves, {weight}));
  }
  count_tokens(state, kBatch * state.range(0));
}

void grc_step(benchmark::State& state) {
  const at::NoGradGuard no_grad;
  const int64_t rows = state.range(0), width = kDim / 2;
  const ops::GrcGates gates{random({width, 2 * width}),
                            random({width}),
                            random({width, 2 * width}),
                            random({width}),
                            random({width, 2 * width}),
                            random({width}),
                            {},
                            {}};
  const at::Tensor cache = random({kBatch, rows, width}), input = random({kBatch, rows, width});
  for (auto _ : state) benchmark::DoNotOptimize(ops::grc_step(cache, input, gates, false));
}

/// With the table already built, as in every call but the first.
void distance_sinusoids(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ops::distance_sinusoids(256, state.range(0), false, 0, kDim, at::TensorOptions(at::kFloat)));
  }
}

/// Appends a key to those of the open segment.
void append_rows(benchmark::State& state) {
  const c10::InferenceMode inference;
  const at::Tensor start = random({1, kHeads, state.range(0), kWidth}), fresh = random({1, kHeads, 1, kWidth});
  at::Tensor all = start;
  for (auto _ : state) {
    all = all.size(2) < 2 * state.range(0) ? core::append_rows(all, fresh, 2) : start;
    benchmark::DoNotOptimize(all);
  }
}

/// The state that a server keeps for a sequence: six layers of a segment cache of 256 rows, or of 32 slots.
core::State segment_cache_state(int64_t batch) {
  memory::SegmentCacheState state;
  for (int64_t layer = 0; layer < 6; ++layer) state.rows.push_back(random({batch, 256, kDim}));
  state.valid = at::ones({batch, 256}, at::kBool);
  return core::State::list({{"segment_cache", state}});
}

core::State abc_state(int64_t batch) {
  core::State::Children layers;
  for (int64_t layer = 0; layer < 6; ++layer) {
    layers.emplace_back(std::to_string(layer),
                        memory::AbcState{random({batch, kHeads, 32, kWidth}), random({batch, kHeads, 32, kWidth}),
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

constexpr auto kTiles = &AttentionInputs::run, kNaive = &AttentionInputs::run_naive;
constexpr bool kSoftmax = false, kRelative = true;
void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"Q", "K"})
      ->Unit(benchmark::kMillisecond)
      ->Args({128, 128})
      ->Args({512, 512})
      ->Args({256, 512})
      ->Args({1, 512});
}
void training_sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"Q", "K"})->Unit(benchmark::kMillisecond)->Args({128, 128})->Args({512, 512})->Args({256, 512});
}
BENCHMARK_TEMPLATE(attention_forward, kSoftmax, kTiles)->Apply(sizes);
BENCHMARK_TEMPLATE(attention_forward, kSoftmax, kNaive)->Apply(sizes);
BENCHMARK_TEMPLATE(attention_forward, kRelative, kTiles)->Apply(sizes);
BENCHMARK_TEMPLATE(attention_forward, kRelative, kNaive)->Apply(sizes);
BENCHMARK_TEMPLATE(attention_forward_and_backward, kSoftmax, kTiles)->Apply(training_sizes);
BENCHMARK_TEMPLATE(attention_forward_and_backward, kSoftmax, kNaive)->Apply(training_sizes);
BENCHMARK_TEMPLATE(attention_forward_and_backward, kRelative, kTiles)->Apply(training_sizes);
BENCHMARK_TEMPLATE(attention_forward_and_backward, kRelative, kNaive)->Apply(training_sizes);
BENCHMARK(append_rows)->Arg(64)->Arg(512)->ArgName("past")->Unit(benchmark::kMicrosecond);
BENCHMARK(abc_forward)->ArgsProduct({{32, 64}, {512, 2048}})->ArgNames({"slots", "T"})->Unit(benchmark::kMillisecond);
BENCHMARK(abc_forward_and_backward)
    ->ArgsProduct({{32, 64}, {512, 2048}})
    ->ArgNames({"slots", "T"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(abc_token)->Arg(32)->Arg(64)->ArgName("slots")->Unit(benchmark::kMicrosecond);
void lengths(benchmark::internal::Benchmark* all) {
  all->Arg(512)->Arg(2048)->ArgName("T")->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(abc_control, mlp, "")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, relu, "control = { type = 'mlp', activation = 'relu' }")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, random, "control = 'random'")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, random_masked, "mask_empty_slots = true\ncontrol = 'random'")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, linformer, "control = { type = 'linformer', max_len = 2048 }")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, clustering, "control = 'clustering'")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, window, "control = 'window'")->Apply(lengths);
BENCHMARK_CAPTURE(abc_control, dilated, "control = 'dilated'")->Apply(lengths);
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
