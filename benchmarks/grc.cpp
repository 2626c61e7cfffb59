// What a gated recurrent cache costs: the same model with and without it, turn about in one run.
//   cmake --build --preset release --target bench_grc && build/release/bench_grc
// The decoder and the Transformer-XL of `mnemo bench` (6 layers, 256 wide, 4 heads, batch 4; 512 tokens, and segments of 256 with a cache
// of 256), and both with grc (cache_ratio 0.5, cache_len 64, one cache for the model), one thread. `times` is the median of 7 rounds of
// with / without. Generation runs the decoding engine on both sides.
// PVT-Tiny at 224 pixels, batch 8, with grc as the paper has it (cache_ratio 0.5, as many rows as each layer has, variant "paper"): evaluation
// that reads the stored cache, evaluation that reads an update, a training step; each also with the convolutional position.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

#include "cli/process_settings.h"
#include "infer/engine.h"
#include "infer/session.h"
#include "models/model.h"
#include "models/vision_model.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace {

using namespace mnemo;

constexpr int64_t kVocabulary = 65, kBatch = 4;

enum Kind { decoder, transformer_xl };
enum Job { evaluation, generation, training };

std::shared_ptr<models::Model> build(Kind kind, bool grc) {
  const bool xl = kind == transformer_xl;
  base::Node node = base::parse_toml("[embedding]\nvocab_size = 65\n[backbone]\nnum_layers = 6\ndim = 256\nnum_heads = 4\nffn_dim = 1024\n"
                                     "norm = \"pre\"\nfinal_norm = true\n", "benchmark");
  base::set_value(node, xl ? "segment_size=256" : "segment_size=512");
  base::set_value(node, xl ? "backbone.attention.type=relative" : "backbone.attention.type=softmax");
  if (!xl) base::set_value(node, "backbone.position.type=sinusoidal");
  int64_t memories = 0;
  if (xl) {
    base::set_value(node, "memory[0].type=segment_cache");
    base::set_value(node, "memory[0].mem_len=256");
    ++memories;
  }
  if (grc) base::set_value(node, fmt::format("memory[{}].type=grc", memories));
  return models::build(base::read_options<models::ModelOptions>(node), 0);
}

/// One model at work.
class Side {
 public:
  Side(Kind kind, bool grc)
      : model_(build(kind, grc)),
        optimiser_(train::make_optimiser(train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-3}})),
                                         model_->parameters())),
        session_(std::make_shared<infer::Engine>(model_), infer::SamplingOptions::greedy()) {
    for (int64_t s = 0; s < (kind == transformer_xl ? 2 : 1); ++s) {
      core::Segment segment;
      segment.tokens = at::randint(0, kVocabulary, {kBatch, model_->segment_size()}, at::kLong);
      segments_.push_back({segment, {}});
      targets_.push_back(at::randint(0, kVocabulary, {kBatch, model_->segment_size()}, at::kLong));
    }
    session_.feed(at::zeros({64}, at::kLong));
  }
  double seconds(Job job) {
    const auto began = std::chrono::steady_clock::now();
    if (job == evaluation) evaluate();
    if (job == generation) {
      for (int64_t i = 0; i < 512; ++i) session_.next();
    }
    if (job == training) train();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

 private:
  void evaluate() const {
    const c10::InferenceMode inference;
    core::State state = model_->initial_state(kBatch);
    for (size_t s = 0; s < segments_.size(); ++s) {
      core::StepResult step = model_->forward(segments_[s].input, state);
      benchmark::DoNotOptimize(model_->nll(step.hidden, targets_[s]).mean().item<double>());
      state = std::move(step.state);
    }
  }
  void train() {
    model_->parameters().zero_grad();
    std::vector<train::BpttSegment> segments = segments_;
    for (train::BpttSegment& segment : segments) segment.input.mode = core::Mode::train;
    const train::BpttResult result =
        train::backward_segments(*model_, segments, model_->initial_state(kBatch), [&](const core::StepResult& step, size_t index) {
          return model_->nll(step.hidden, targets_[index]).mean();
        });
    optimiser_->step(optimiser_->base_lr());
    model_->commit(result.state);
  }

  std::shared_ptr<models::Model> model_;
  std::unique_ptr<train::Optimiser> optimiser_;
  infer::Session session_;
  std::vector<train::BpttSegment> segments_;
  std::vector<at::Tensor> targets_;
};

/// PVT-Tiny at work; memory is the rest of its table, empty: none.
class VisionSide {
 public:
  explicit VisionSide(const std::string& memory)
      : model_(base::read_options<models::ModelOptions>(base::parse_toml(
                   "[backbone]\ntype = \"pvt\"\n[head]\ntype = \"classification\"\nnum_classes = 1000\npool = \"cls\"\n" +
                       (memory.empty() ? "" : "[[memory]]\ntype = \"grc\"\nqkv_bias = true\n" + memory),
                   "benchmark")),
               0, at::kFloat),
        optimiser_(train::make_optimiser(train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-3}})), model_.parameters())) {
    segment_.pixels = at::randn({kImages, 3, 224, 224});
    targets_ = at::randint(0, 1000, {kImages, 1}, at::kLong);
  }
  double seconds(Job job) {
    const auto began = std::chrono::steady_clock::now();
    if (job == evaluation) {
      const c10::InferenceMode inference;
      benchmark::DoNotOptimize(model_.logits(model_.forward(segment_, model_.initial_state(kImages)).hidden).sum().item<double>());
    } else {
      model_.parameters().zero_grad();
      core::Segment segment = segment_;
      segment.mode = core::Mode::train;
      const core::StepResult step = model_.forward(segment, model_.initial_state(kImages));
      model_.nll(step.hidden, targets_).mean().backward();
      optimiser_->step(optimiser_->base_lr());
      model_.commit(step.state);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }

 private:
  static constexpr int64_t kImages = 8;
  models::VisionModel model_;
  std::unique_ptr<train::Optimiser> optimiser_;
  core::Segment segment_;
  at::Tensor targets_;
};

template <class AnySide>
void turn_about(benchmark::State& state, AnySide& without, AnySide& with, Job job) {
  std::vector<double> ratios;
  without.seconds(job), with.seconds(job);  // warm-up
  for (auto _ : state) {
    const double alone = without.seconds(job), both = with.seconds(job);
    ratios.push_back(both / alone);
    state.SetIterationTime(both);
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["times"] = ratios[ratios.size() / 2];
  state.counters["least"] = ratios.front();
  state.counters["most"] = ratios.back();
}

void cost(benchmark::State& state, Kind kind, Job job) {
  Side without(kind, false), with(kind, true);
  turn_about(state, without, with, job);
}

void vision_cost(benchmark::State& state, const char* memory, Job job) {
  VisionSide without(""), with(memory);
  turn_about(state, without, with, job);
}

}  // namespace

#define GRC_COST(kind, job) BENCHMARK_CAPTURE(cost, kind##_##job, kind, job)->Iterations(7)->UseManualTime()->Unit(benchmark::kMillisecond)
GRC_COST(decoder, evaluation);
GRC_COST(decoder, generation);
GRC_COST(decoder, training);
GRC_COST(transformer_xl, evaluation);
GRC_COST(transformer_xl, generation);
GRC_COST(transformer_xl, training);
#define GRC_IMAGE_COST(name, memory, job) \
  BENCHMARK_CAPTURE(vision_cost, name##_##job, memory, job)->Iterations(7)->UseManualTime()->Unit(benchmark::kMillisecond)
GRC_IMAGE_COST(pvt_tiny_stored, "eval_read = \"stored\"", evaluation);
GRC_IMAGE_COST(pvt_tiny_updated, "eval_read = \"updated\"", evaluation);
GRC_IMAGE_COST(pvt_tiny, "eval_read = \"updated\"", training);
GRC_IMAGE_COST(pvt_tiny_cpe_stored, "position = \"cpe\"\neval_read = \"stored\"", evaluation);
GRC_IMAGE_COST(pvt_tiny_cpe_updated, "position = \"cpe\"", evaluation);
GRC_IMAGE_COST(pvt_tiny_cpe, "position = \"cpe\"", training);

int main(int argc, char** argv) {
  cli::apply_process_settings();
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
