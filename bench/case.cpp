#include "bench/case.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "bench/allocation_meter.h"
#include "bench/rounds.h"
#include "infer/session.h"
#include "inspect/cost.h"
#include "models/text_model.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kVocabulary = 65, kEvaluationSegments = 8;

}  // namespace

std::string unlike(const char* what, double ours, double theirs, double tolerance) {
  if (std::abs(ours - theirs) <= tolerance * std::abs(ours)) return {};
  return fmt::format("{}: ours {:.7g}, the peer's {:.7g}", what, ours, theirs);
}

void spread_parameters(const layers::ParameterSet& parameters, at::Generator generator) {
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& parameter : parameters.all()) {
    at::Tensor tensor = parameter.tensor;
    if (tensor.dim() == 1 || parameter.kind == layers::ParameterKind::bias) {
      tensor.add_(at::empty_like(tensor).normal_(0.0, 0.1, generator));
    } else if (parameter.name != "memory.tokens") {
      const double gain = parameter.name == "embed.weight" ? 1.0 : 2.0;
      tensor.normal_(0.0, gain / std::sqrt(static_cast<double>(tensor.size(1))), generator);
    }
  }
}

const std::vector<BenchCase>& bench_cases() {
  // layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments per step
  static const std::vector<BenchCase> cases = {
      {"demo", "relative", 2, 64, 4, 256, 8, 24, 0, 0, 32, 2},  // the cache of recipes/demo.toml
      {"transformer_xl", "relative", 6, 256, 4, 1024, 256, 256, 0, 0, 4, 2, 64},
      {"rmt", "relative", 6, 256, 4, 1024, 128, 0, 16, 0, 4, 4},
      {"abc", "abc", 6, 256, 4, 1024, 2048, 0, 0, 32, 1, 1},
      {"decoder", "softmax", 6, 256, 4, 1024, 512, 0, 0, 0, 4, 1},
  };
  return cases;
}

std::unique_ptr<models::Model> BenchCase::build() const {
  models::ModelOptions options;
  options.embedding.vocab_size = kVocabulary;
  options.segment_size = segment;
  options.backbone.stack().num_layers = layers;
  options.backbone.stack().dim = dim;
  options.backbone.stack().num_heads = heads;
  options.backbone.stack().ffn_dim = ffn;
  options.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre;
  options.backbone.stack().final_norm = true;
  options.backbone.stack().attention = base::Node::table({{"type", attention}});
  if (attention == "softmax") options.backbone.stack().position.type = backbones::PositionOptions::Type::sinusoidal;
  if (attention == "abc") options.backbone.stack().attention.set("num_slots", slots);
  if (mem_len > 0)
    options.memory.push_back(models::ModelOptions::memory_types().read(
        base::Node::table({{"type", "segment_cache"}, {"mem_len", mem_len}})));
  if (mem_tokens > 0) {
    options.memory.push_back(models::ModelOptions::memory_types().read(
        base::Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", mem_tokens}})));
  }
  if (grc) {
    options.memory.push_back(
        models::ModelOptions::memory_types().read(base::Node::table({{"type", "grc"}, {"gate_bias", true}})));
  }
  auto model = models::build(options, 0);
  spread_parameters(model->parameters(), at::detail::createCPUGenerator(1));
  return model;
}

base::Node BenchCase::as_node(int64_t threads) const {
  return base::Node::table({{"name", name},
                            {"attention", attention},
                            {"vocab", kVocabulary},
                            {"layers", layers},
                            {"dim", dim},
                            {"heads", heads},
                            {"ffn", ffn},
                            {"segment", segment},
                            {"mem_len", mem_len},
                            {"mem_tokens", mem_tokens},
                            {"slots", slots},
                            {"batch", batch},
                            {"segments", segments},
                            {"evaluation_segment", evaluation_segment},
                            {"threads", threads}});
}

BenchFigures read_figures(const std::string& json, const std::string& peer) {
  const base::Node node = base::parse_json(json, peer);
  BenchFigures figures{
      node.at("loss").as_double(), node.at("gradient_norm").as_double(), node.at("held_out").as_double(), {}};
  for (const base::Node& token : node.at("tokens").items()) figures.tokens.push_back(token.as_int());
  return figures;
}

std::string disagreement(const BenchFigures& ours, const BenchFigures& theirs) {
  std::string found = unlike("loss", ours.loss, theirs.loss, 1e-4);
  if (found.empty()) found = unlike("gradient norm", ours.gradient_norm, theirs.gradient_norm, 1e-3);
  if (found.empty()) found = unlike("loss of the held-out text", ours.held_out, theirs.held_out, 1e-4);
  if (!found.empty() || ours.tokens == theirs.tokens) return found;
  if (ours.tokens.size() != theirs.tokens.size()) {
    return fmt::format("likeliest tokens: ours are {}, the peer's {}", ours.tokens.size(), theirs.tokens.size());
  }
  const auto at = std::mismatch(ours.tokens.begin(), ours.tokens.end(), theirs.tokens.begin());
  return fmt::format("likeliest token {}: ours {}, the peer's {}", at.first - ours.tokens.begin(), *at.first,
                     *at.second);
}

void wait_for(at::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

struct BenchSubject::Parts {
  BenchCase bench_case;
  at::Device device = at::kCPU;
  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Optimiser> optimiser;
  at::Tensor tokens, text, fed;
  std::vector<train::BpttSegment> segments;
  std::vector<at::Tensor> targets;
  std::map<std::pair<int64_t, bool>, infer::Session> sessions;  ///< by position, and whether graphs run the tokens

  /// Computes the gradients of a training step.
  train::BpttResult backward() const {
    model->parameters().zero_grad();
    const double share = 1.0 / static_cast<double>(segments.size());
    return train::backward_segments(
        *model, segments, model->initial_state(bench_case.batch),
        [&](const core::StepResult& step, size_t k) { return model->nll(step.hidden, targets[k]).mean() * share; });
  }

  /// Mean loss on the held-out text.
  double held_out() const {
    const c10::InferenceMode inference;
    core::State state = model->initial_state(text.size(0));
    double sum = 0;
    for (int64_t begin = 0; begin + 1 < text.size(1); begin += bench_case.evaluation_segment) {
      core::Segment segment;
      segment.tokens = text.narrow(1, begin, bench_case.evaluation_segment);
      core::StepResult step = model->forward(segment, state);
      sum += model->nll(step.hidden, text.narrow(1, begin + 1, bench_case.evaluation_segment)).mean().item<double>();
      state = std::move(step.state);
    }
    return sum / kEvaluationSegments;
  }

  infer::Session& session(int64_t position, bool graphs = false) {
    auto found = sessions.find({position, graphs});
    if (found == sessions.end()) {
      infer::Session session = infer::fastest_session(model, infer::GenerateOptions::greedy());
      session.set_graphs(graphs);
      session.feed(at::zeros({position}, at::kLong));
      found = sessions.emplace(std::pair(position, graphs), std::move(session)).first;
    }
    return found->second;
  }
};

BenchSubject::BenchSubject(const BenchCase& bench_case, at::Device device) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.bench_case = bench_case;
  p.device = device;
  p.model = bench_case.build();
  if (!device.is_cpu()) p.model->parameters().to(at::kFloat, device);
  p.optimiser = train::make_optimiser(
      train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-3}})),
      p.model->parameters().all());
  at::Generator generator = at::detail::createCPUGenerator(2);
  auto draw = [&](int64_t length) {
    return at::randint(0, kVocabulary, {bench_case.batch, length + 1}, generator, at::kLong).to(device);
  };
  p.tokens = draw(bench_case.segment * bench_case.segments);
  p.text = draw(bench_case.evaluation_segment * kEvaluationSegments);
  p.fed = draw(device.is_cpu() ? std::max<int64_t>(79, bench_case.segment + 15) : 79).select(0, 0).cpu();
  for (int64_t s = 0; s < bench_case.segments; ++s) {
    core::Segment segment;
    segment.tokens = p.tokens.narrow(1, s * bench_case.segment, bench_case.segment).contiguous();
    segment.mode = core::Mode::train;
    p.segments.push_back({segment, {}});
    p.targets.push_back(p.tokens.narrow(1, s * bench_case.segment + 1, bench_case.segment).contiguous());
  }
}

BenchSubject::~BenchSubject() = default;

weights::NamedTensors BenchSubject::tensors() const {
  weights::NamedTensors tensors = parts_->model->parameters().named();
  tensors.emplace_back("bench.tokens", parts_->tokens);
  tensors.emplace_back("bench.text", parts_->text);
  tensors.emplace_back("bench.fed", parts_->fed);
  for (auto& [name, tensor] : tensors) tensor = tensor.cpu();
  return tensors;
}

BenchFigures BenchSubject::figures() const {
  const Parts& p = *parts_;
  BenchFigures figures;
  for (const at::Tensor& part : p.backward().losses) figures.loss += part.item<double>();
  figures.gradient_norm = train::gradient_norm(p.model->parameters().all());
  if (p.bench_case.evaluation_segment > 0) figures.held_out = p.held_out();
  infer::Session session = infer::fastest_session(p.model, infer::GenerateOptions::greedy());
  for (int64_t i = 0; i < p.fed.size(0); ++i) {
    session.feed(p.fed.narrow(0, i, 1));
    figures.tokens.push_back(session.logits().argmax().item<int64_t>());
  }
  return figures;
}

double BenchSubject::train(int64_t steps, ops::ProductPrecision precision) {
  Parts& p = *parts_;
  const ops::ProductPrecisionGuard guard(precision);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t step = 0; step < steps; ++step) {
    const train::BpttResult result = p.backward();
    train::clip_gradients(p.model->parameters().all(), train::gradient_norm(p.model->parameters().all()), 1.0);
    p.optimiser->step();
    p.model->commit(result.state);
  }
  wait_for(p.device);
  return seconds_since(begin);
}

double BenchSubject::train_products() const {
  const BenchCase& c = parts_->bench_case;
  const auto& model = dynamic_cast<const models::TextModel&>(*parts_->model);
  double forward = 0;
  for (int64_t s = 0; s < c.segments; ++s) {
    const inspect::CostOptions options{.batch = c.batch, .position = s * c.segment};
    forward += static_cast<double>(inspect::count_cost(model, options).total.flops);
  }
  return 3 * forward;
}

int64_t BenchSubject::graph_tokens(int64_t position) { return parts_->session(position, true).graph_tokens(); }

double BenchSubject::generate(int64_t position, int64_t tokens, bool graphs) {
  infer::Session& session = parts_->session(position, graphs);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < tokens; ++i) session.next();
  return seconds_since(begin);
}

double BenchSubject::allocated(int64_t position) {
  const BenchCase& c = parts_->bench_case;
  infer::Session session = parts_->session(position).fork();
  // Move on to the start of a segment; each call runs the token that the previous one picked.
  do session.next();
  while ((session.position() - 1) % c.segment != 0);
  const int64_t tokens = std::lcm(c.segment, std::max<int64_t>(1, c.mem_len));
  const AllocationMeter meter;
  for (int64_t i = 0; i < tokens; ++i) session.next();
  return static_cast<double>(meter.bytes()) / static_cast<double>(tokens);
}

double BenchSubject::evaluate() {
  const auto begin = std::chrono::steady_clock::now();
  parts_->held_out();
  return seconds_since(begin);
}

int64_t BenchSubject::evaluation_tokens() const { return parts_->text.size(0) * (parts_->text.size(1) - 1); }

int64_t BenchSubject::window() const { return parts_->bench_case.mem_len + parts_->bench_case.evaluation_segment; }

double BenchSubject::recompute() {
  const Parts& p = *parts_;
  const c10::InferenceMode inference;
  const auto begin = std::chrono::steady_clock::now();
  core::Segment segment;
  segment.tokens = p.text.narrow(1, 0, window());
  const core::StepResult step = p.model->forward(segment, p.model->initial_state(p.text.size(0)));
  p.model->nll(step.hidden.narrow(1, window() - 1, 1), p.text.narrow(1, window(), 1)).mean().item<double>();
  return seconds_since(begin);
}

}  // namespace mnemo::bench
