#include "bench/mechanism.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "bench/case.h"
#include "bench/limits.h"
#include "bench/rounds.h"
#include "models/model.h"
#include "tasks/token_loss.h"
#include "train/auxiliary_loss.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kClasses = 10, kCheckTokens = 768, kCheckSegment = 128;

constexpr const char* kCommon = R"(
segment_size = 512
embedding.vocab_size = 65
backbone = {{ type = "{}", num_layers = 2, dim = 256, num_heads = 4, ffn_dim = 1024, norm = "pre", final_norm = true, position = {{ type = "{}" }}, attention = {{ {} }} }}
memory = [{}]
head = {{ {} }}
)";

}  // namespace

const std::vector<int64_t>& mechanism_lengths() {
  static const std::vector<int64_t> lengths = {512, 2048, 8192};
  return lengths;
}

const std::vector<MechanismCase>& mechanism_cases() {
  const std::string softmax = R"(type = "softmax")", relative = R"(type = "relative")",
                    elu = R"(type = "linear", feature_map = "elu")", abc = R"(type = "abc", num_slots = 32)";
  const auto control = [&](const std::string& options) { return abc + ", control = { type = " + options + " }"; };
  const auto memory = [](const std::string& options) { return "{ type = " + options + " }"; };
  std::string spread = "0";  // 32 tokens out of 8,192, denser at the start
  for (int64_t i = 1; i < 32; ++i) spread += fmt::format(", {}", i * i * 8);
  const std::string grc = R"("grc", cache_ratio = 0.5, cache_len = 64)",
                    bigbird = R"(type = "bigbird", num_random_blocks = 3, block_size = )";
  static const std::vector<MechanismCase> cases = {
      {"softmax", softmax},
      {"relative", relative},
      {"relative_buckets", R"(type = "relative_buckets")"},
      {"sliding_window", R"(type = "sliding_window", window_size = 256)"},
      {"lsh", R"(type = "lsh", num_buckets = 64, num_hashes = 2, chunk_len = 64)", "", false, 0.9},
      {"linear_elu", elu},
      {"linear_t2r", R"(type = "linear", feature_map = "t2r", num_features = 32)"},
      {"linear_rfa", R"(type = "linear", feature_map = "rfa", num_features = 32)"},
      {"abc_mlp", control(R"("mlp")")},
      {"abc_random", control(R"("random")")},
      {"abc_linformer", control(R"("linformer", max_len = 8192)")},
      {"abc_clustering", control(R"("clustering")"), "", false, 0.9},
      {"abc_window", control(R"("window")")},
      {"abc_dilated", control(R"("dilated")")},
      {"abc_local_to_global", control(R"("local_to_global", global_positions = [)" + spread + "]")},
      {"abc_compressive", control(R"("compressive", compression = 256)")},
      {"abc_luna", control(R"("luna")"), "", true},
      {"softmax_encoder", softmax, "", true},
      {"disentangled", R"(type = "disentangled")", "", true},
      {"bigbird", bigbird + "64", "", true},
      {"linformer", R"(type = "linformer", num_slots = 256, max_len = 8192)", "", true},
      {"segment_cache", relative, memory(R"("segment_cache", mem_len = 512)")},
      {"attention_cache", softmax, memory(R"("attention_cache", mem_len = 512)")},
      {"compressive", relative,
       memory(R"("compressive", mem_len = 256, compressed_len = 64, compression_rate = 4, compression = "conv")")},
      {"memory_tokens", relative, memory(R"("memory_tokens", num_mem_tokens = 16)")},
      {.name = "recurrent_tokens",
       .attention = relative,
       .memory = memory(R"("recurrent_tokens", num_mem_tokens = 16)"),
       .gradient = 5e-3},
      {"recurrent_tokens_encoder", softmax,
       memory(
           R"("recurrent_tokens", layout = "encoder", num_mem_tokens = 16, cls_token = 62, sep_token = 63, pad_token = 64)"),
       true},
      {"knn", relative, memory(R"("knn", memory_len = 4096, top_k = 32)"), false, 0.9},
      {"grc_softmax", softmax, memory(grc)},
      {"grc_relative", relative, memory(grc)},
      {"grc_sliding_window", R"(type = "sliding_window", window_size = 256)", memory(grc)},
      {"grc_linear", elu + ", bptt_depth = 1", memory(grc)},
      {"grc_encoder", softmax, memory(grc), true},
      {"grc_bigbird", bigbird + "32", memory(grc), true},
  };
  return cases;
}

models::ModelOptions MechanismCase::options() const {
  const bool relative = attention.find("\"relative\"") != std::string::npos,
             block = memory.find("layout = \"encoder\"") != std::string::npos;
  const std::string head = encoder ? fmt::format(R"(type = "classification", num_classes = {}, pool = "{}")", kClasses,
                                                 block ? "cls" : "mean")
                                   : R"(type = "language_model")";
  return base::read_options<models::ModelOptions>(base::parse_toml(
      fmt::format(kCommon, encoder ? "encoder" : "decoder", relative ? "none" : "sinusoidal", attention, memory, head),
      name));
}

MechanismFigures read_mechanism_figures(const std::string& json, const std::string& peer) {
  const base::Node node = base::parse_json(json, peer);
  return {node.at("loss").as_double(), node.at("gradient_norm").as_double(), node.at("agree").as_double(),
          node.at("off").as_double()};
}

std::string mechanism_disagreement(const MechanismCase& mechanism, const MechanismFigures& ours,
                                   const MechanismFigures& theirs) {
  if (!(theirs.agree >= mechanism.agree)) {
    return fmt::format("outputs: {:.4g} of the tokens are the peer's, expected {:.4g}; off by {:.3g} of the largest",
                       theirs.agree, mechanism.agree, theirs.off);
  }
  // At these sizes, a relative difference of 1e-4 in the loss is more than rounding.
  const std::string loss = unlike("loss", ours.loss, theirs.loss, 1e-4);
  return loss.empty() ? unlike("gradient norm", ours.gradient_norm, theirs.gradient_norm, mechanism.gradient) : loss;
}

struct MechanismSubject::Parts {
  MechanismCase mechanism;
  std::unique_ptr<models::Model> model;
  std::unique_ptr<train::Optimiser> optimiser;
  at::Tensor tokens, labels;

  struct Outcome {
    double loss = 0;
    std::vector<at::Tensor> outputs;
  };

  /// The segments of the first `count` tokens; `segment` 0: a single one.
  std::vector<data::Batch> segments(int64_t count, int64_t segment) const {
    const int64_t size = segment == 0 ? count : segment;
    std::vector<data::Batch> result;
    for (int64_t s = 0; s < count / size; ++s) {
      data::Batch part;
      part.input.tokens = tokens.narrow(1, s * size, size).contiguous();
      const at::Tensor targets = mechanism.encoder ? labels.narrow(1, s, 1)
                                                   : tokens.narrow(1, s * size + 1, size).contiguous();
      part.targets = data::TokenTargets{targets};
      part.num_targets = targets.numel();
      result.push_back(std::move(part));
    }
    return result;
  }

  Outcome backward(int64_t count, int64_t segment) const {
    const std::vector<data::Batch> parts = segments(count, segment);
    std::vector<train::BpttSegment> inputs;
    int64_t targets = 0;
    for (const data::Batch& part : parts) {
      inputs.push_back({core::in_training(part.input), {}});
      targets += part.num_targets;
    }
    Outcome outcome;
    outcome.outputs.resize(parts.size());
    const double share = 1.0 / static_cast<double>(parts.size());
    const train::BpttResult result = train::backward_segments(
        *model, inputs, model->initial_state(1), [&](const core::StepResult& step, size_t k) {
          outcome.outputs[k] = step.hidden.detach();
          return train::with_auxiliary(tasks::token_loss(*model, step, parts[k], targets).total, *model, step, share);
        });
    for (const at::Tensor& loss : result.losses) outcome.loss += loss.item<double>();
    return outcome;
  }

  void step(int64_t count) const {
    backward(count, mechanism.segment());
    train::clip_gradients(model->parameters().all(), train::gradient_norm(model->parameters().all()), 1.0);
    optimiser->step();
    model->parameters().zero_grad();
  }

  int64_t check_segment() const { return mechanism.segment() == 0 ? 0 : kCheckSegment; }
};

MechanismSubject::MechanismSubject(const MechanismCase& mechanism) : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.mechanism = mechanism;
  p.model = models::build(mechanism.options(), 0);
  spread_parameters(p.model->parameters(), at::detail::createCPUGenerator(1));
  p.optimiser = train::make_optimiser(
      train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-3}})),
      p.model->parameters().all());
  at::Generator generator = at::detail::createCPUGenerator(2);
  p.tokens = at::randint(0, core::token_input(p.model->input()).vocab_size, {1, mechanism_lengths().back() + 1},
                         generator, at::kLong);
  p.labels = at::randint(0, kClasses, {1, mechanism_lengths().back() / kCheckSegment}, generator, at::kLong);
}

MechanismSubject::~MechanismSubject() = default;

weights::NamedTensors MechanismSubject::tensors() const {
  const Parts& p = *parts_;
  weights::NamedTensors tensors = p.model->parameters().named();
  tensors.emplace_back("bench.tokens", p.tokens);
  tensors.emplace_back("bench.labels", p.labels);
  tensors.emplace_back("bench.outputs", at::cat(p.backward(kCheckTokens, p.check_segment()).outputs, 1));
  p.model->parameters().zero_grad();
  return tensors;
}

base::Node MechanismSubject::peer_case(int64_t threads, int64_t memory_limit) const {
  const Parts& p = *parts_;
  int64_t depth = 0;
  for (const auto& [field, tensor] : p.model->initial_state(1).fields()) {
    const int64_t own = p.model->bptt_depth(field.path);
    depth = own < 0 || depth < 0 ? -1 : std::max(depth, own);
  }
  return base::Node::table({{"config", base::write_options(p.model->options())},
                            {"segment", p.mechanism.segment()},
                            {"bptt_depth", depth},
                            {"check_tokens", kCheckTokens},
                            {"threads", threads},
                            {"memory_limit", memory_limit}});
}

std::string MechanismSubject::check_request() const { return fmt::format("check {} 1e-4", parts_->check_segment()); }

MechanismFigures MechanismSubject::figures() const {
  const Parts& p = *parts_;
  MechanismFigures figures;
  figures.loss = p.backward(kCheckTokens, p.check_segment()).loss;
  figures.gradient_norm = train::gradient_norm(p.model->parameters().all());
  p.model->parameters().zero_grad();
  return figures;
}

double MechanismSubject::train(int64_t tokens) {
  const auto begin = std::chrono::steady_clock::now();
  parts_->step(tokens);
  return seconds_since(begin);
}

std::optional<int64_t> MechanismSubject::memory(int64_t tokens) {
  return extra_memory([&] { parts_->step(tokens); });
}

int64_t MechanismSubject::state_bytes(int64_t tokens) const {
  const Parts& p = *parts_;
  const c10::InferenceMode inference;
  core::State state = p.model->initial_state(1);
  const std::vector<data::Batch> parts = p.segments(tokens, p.mechanism.segment());
  for (size_t s = 0; s < parts.size(); ++s) {
    core::Segment segment = parts[s].input;
    segment.part.ends = p.mechanism.encoder || s + 1 < parts.size();
    state = p.model->forward(segment, state).state;
  }
  return core::num_bytes(state);
}

}  // namespace mnemo::bench
