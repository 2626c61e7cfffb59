#include "cli/bench_case.h"

#include <torch/types.h>

#include <chrono>
#include <map>

#include "infer/session.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace mnemo::cli {
namespace {

constexpr int64_t kVocabulary = 65;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  // name, layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments
  static const std::vector<BenchCase> cases = {
      {"demo", 3, 96, 4, 384, 8, 24, 0, 0, 32, 4},
      {"transformer_xl", 6, 256, 4, 1024, 64, 64, 0, 0, 8, 1},
      {"rmt", 6, 256, 4, 1024, 64, 0, 8, 0, 8, 2},
      {"abc", 6, 256, 4, 1024, 128, 0, 0, 32, 4, 1},
  };
  return cases;
}

std::unique_ptr<models::Model> BenchCase::build() const {
  models::ModelOptions options;
  options.embedding.vocab_size = kVocabulary;
  options.segment_size = segment;
  options.backbone.num_layers = layers;
  options.backbone.dim = dim;
  options.backbone.num_heads = heads;
  options.backbone.ffn_dim = ffn;
  options.backbone.norm = "pre";
  options.backbone.final_norm = true;
  if (slots > 0) options.backbone.attention = base::Node::table({{"type", "abc"}, {"num_slots", slots}});
  if (mem_len > 0) options.memory.push_back(base::Node::table({{"type", "segment_cache"}, {"mem_len", mem_len}}));
  if (mem_tokens > 0) {
    options.memory.push_back(base::Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", mem_tokens}}));
  }
  return models::build(options, 0);
}

base::Node BenchCase::as_node(int64_t threads) const {
  return base::Node::table({{"name", name}, {"vocab", kVocabulary}, {"layers", layers}, {"dim", dim}, {"heads", heads},
                            {"ffn", ffn}, {"segment", segment}, {"mem_len", mem_len}, {"mem_tokens", mem_tokens},
                            {"slots", slots}, {"batch", batch}, {"segments", segments}, {"threads", threads}});
}

struct BenchSubject::Parts {
  BenchCase bench_case;
  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Optimiser> optimiser;
  std::vector<train::BpttSegment> segments;
  std::vector<at::Tensor> targets;
  std::map<int64_t, infer::Session> sessions;
};

BenchSubject::BenchSubject(const BenchCase& bench_case) : parts_(std::make_unique<Parts>()) {
  parts_->bench_case = bench_case;
  parts_->model = bench_case.build();
  parts_->optimiser = train::make_optimiser(
      train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-3}})), parts_->model->parameters());
  const at::Tensor tokens =
      at::randint(kVocabulary, {bench_case.batch, bench_case.segment * bench_case.segments + 1}, at::kLong);
  for (int64_t s = 0; s < bench_case.segments; ++s) {
    core::Segment segment;
    segment.tokens = tokens.narrow(1, s * bench_case.segment, bench_case.segment).contiguous();
    segment.mode = core::Mode::train;
    parts_->segments.push_back({segment, {}});
    parts_->targets.push_back(tokens.narrow(1, s * bench_case.segment + 1, bench_case.segment).contiguous());
  }
}

BenchSubject::~BenchSubject() = default;

double BenchSubject::train(int64_t steps) {
  Parts& p = *parts_;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    p.model->parameters().zero_grad();
    const double share = 1.0 / static_cast<double>(p.segments.size());
    train::backward_segments(*p.model, p.segments, p.model->initial_state(p.bench_case.batch),
                             [&](const core::StepResult& result, size_t k) {
                               return p.model->nll(result.hidden, p.targets[k]).mean() * share;
                             });
    train::clip_gradients(p.model->parameters(), train::gradient_norm(p.model->parameters()), 1.0);
    p.optimiser->step(p.optimiser->base_lr());
  }
  return seconds_since(begin);
}

double BenchSubject::generate(int64_t position, int64_t tokens) {
  Parts& p = *parts_;
  auto found = p.sessions.find(position);
  if (found == p.sessions.end()) {
    infer::Session session(p.model, {.temperature = 0.0});
    session.feed(at::zeros({position}, at::kLong));
    found = p.sessions.emplace(position, std::move(session)).first;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < tokens; ++i) found->second.next();
  return seconds_since(begin);
}

}  // namespace mnemo::cli
