#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "bench/case.h"
#include "bench/decoding.h"
#include "bench/peers.h"
#include "bench/rounds.h"
#include "infer/engine.h"
#include "infer/scheduler.h"
#include "infer/session.h"
#include "ops/activation.h"

namespace mnemo::bench {
const std::vector<DecodingCase>& decoding_cases() {
  // layers, dim, heads, ffn, vocab, segment, mem_len, mem_tokens, slots, contexts, kv_heads
  static const std::vector<DecodingCase> cases = {
      {"gpt2_small", "softmax", 12, 768, 12, 3072, 50257, 8448, 0, 0, 0, {128, 1024}},
      {"gpt2_small_8k", "softmax", 12, 768, 12, 3072, 50257, 8448, 0, 0, 0, {8192}},
      {"llama_small", "softmax", 12, 768, 12, 2048, 32000, 8448, 0, 0, 0, {128, 1024}, 4},
      {"llama_small_8k", "softmax", 12, 768, 12, 2048, 32000, 8448, 0, 0, 0, {8192}, 4},
      {"six_layer", "softmax", 6, 512, 8, 2048, 32000, 8448, 0, 0, 0, {128, 1024, 8192}},
      {"six_layer_xl", "relative", 6, 512, 8, 2048, 32000, 256, 512, 0, 0, {1024}},
      {"six_layer_rmt", "relative", 6, 512, 8, 2048, 32000, 512, 0, 16, 0, {1024}},
      {"six_layer_abc", "abc", 6, 512, 8, 2048, 32000, 500, 0, 0, 32, {1000}},
  };
  return cases;
}

std::unique_ptr<models::Model> DecodingCase::build() const {
  models::ModelOptions options;
  options.embedding.vocab_size = vocab;
  options.embedding.scale = false;
  options.segment_size = segment;
  options.backbone.stack().num_layers = layers;
  options.backbone.stack().dim = dim;
  options.backbone.stack().num_heads = heads;
  options.backbone.stack().ffn_dim = ffn;
  options.backbone.stack().activation = ops::Activation::gelu_tanh;
  options.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre;
  options.backbone.stack().final_norm = true;
  options.backbone.stack().attention = base::Node::table({{"type", attention}});
  if (kv_heads > 0) {
    options.backbone.stack().activation = ops::Activation::silu;
    options.backbone.stack().norm_type = layers::NormType::rms;
    options.backbone.stack().ffn_gated = true;
    options.backbone.stack().ffn_bias = false;
    options.backbone.stack().attention.set("bias", false);
    options.backbone.stack().attention.set("num_kv_heads", kv_heads);
    options.backbone.stack().attention.set("rotary", base::Node::table({{"base", 10000.0}}));
  } else if (attention == "softmax") {
    options.backbone.stack().position.type = backbones::PositionOptions::Type::learned;
    options.backbone.stack().position.max_len = segment;
  }
  if (attention == "abc") options.backbone.stack().attention.set("num_slots", slots);
  if (mem_len > 0)
    options.memory.push_back(models::ModelOptions::memory_types().read(
        base::Node::table({{"type", "segment_cache"}, {"mem_len", mem_len}})));
  if (mem_tokens > 0)
    options.memory.push_back(models::ModelOptions::memory_types().read(
        base::Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", mem_tokens}})));
  options.head.set("bias", false);
  auto model = models::build(options, 0);
  spread_parameters(model->parameters(), at::detail::createCPUGenerator(1));
  return model;
}

base::Node DecodingCase::as_node(int64_t threads) const {
  return base::Node::table({{"name", name},
                            {"vocab", vocab},
                            {"layers", layers},
                            {"dim", dim},
                            {"heads", heads},
                            {"kv_heads", kv_heads},
                            {"ffn", ffn},
                            {"segment", segment},
                            {"threads", threads}});
}

namespace {

/// Tokens without a text.
class SilentTokenizer final : public text::Tokenizer {
 public:
  explicit SilentTokenizer(int64_t size) : size_(size) {}
  std::string type() const override { return "silent"; }
  int64_t size() const override { return size_; }
  int64_t unknown_id() const override { return -1; }
  std::unique_ptr<text::Encoder> encoder(std::string, int64_t) const override { return nullptr; }
  void append(std::string&, int64_t) const override {}
  text::Files save() const override { return {}; }

 private:
  int64_t size_;
};

}  // namespace

struct DecodingSubject::Parts {
  /// One sequence, or several that advance together.
  struct Running {
    std::optional<infer::Session> one;
    std::unique_ptr<infer::Scheduler> many;
    void next() {
      if (one) {
        one->next();
      } else {
        many->tick();
      }
    }
  };

  DecodingCase decoding_case;
  std::shared_ptr<models::Model> model;
  std::map<std::string, std::shared_ptr<const infer::Engine>> engines;
  std::map<std::tuple<std::string, int64_t, int64_t>, Running> running;

  const std::shared_ptr<const infer::Engine>& engine(const std::string& precision) {
    std::shared_ptr<const infer::Engine>& found = engines[precision];
    if (!found)
      found = std::make_shared<infer::Engine>(model, infer::EngineOptions{ops::precision_of(precision, "--precision")});
    return found;
  }

  /// A session that has read random tokens.
  infer::Session fed(const std::string& precision, int64_t context) {
    infer::Session session(engine(precision), infer::GenerateOptions::greedy());
    session.feed(at::randint(0, decoding_case.vocab, {context}, at::detail::createCPUGenerator(3), at::kLong));
    return session;
  }
};

DecodingSubject::DecodingSubject(const DecodingCase& decoding_case) : parts_(std::make_unique<Parts>()) {
  parts_->decoding_case = decoding_case;
  parts_->model = decoding_case.build();
}

DecodingSubject::~DecodingSubject() = default;

weights::NamedTensors DecodingSubject::tensors() const { return parts_->model->parameters().named(); }

std::vector<int64_t> DecodingSubject::greedy(int64_t count) {
  infer::Session session(parts_->engine("float32"), infer::GenerateOptions::greedy());
  const int64_t first = 0;
  session.feed({&first, 1});
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(session.next());
  return tokens;
}

double DecodingSubject::token(const std::string& precision, int64_t context, int64_t batch, int64_t count) {
  Parts& p = *parts_;
  const auto key = std::tuple(precision, context, batch);
  auto found = p.running.find(key);
  if (found == p.running.end()) {
    Parts::Running running;
    running.one = p.fed(precision, context);
    if (batch > 1) {
      running.many = std::make_unique<infer::Scheduler>(p.engine(precision));
      const infer::TextSession text(*running.one, std::make_shared<SilentTokenizer>(p.decoding_case.vocab));
      for (int64_t i = 0; i < batch; ++i)
        running.many->submit(text, {}, {.max_tokens = std::numeric_limits<int64_t>::max()});
      running.one.reset();
    }
    found = p.running.emplace(key, std::move(running)).first;
    found->second.next();  // the logits after the prompt already exist
  }
  return median(seconds_of(count, [&] { found->second.next(); }));
}

double DecodingSubject::bytes(const std::string& precision, int64_t context) {
  return static_cast<double>(parts_->engine(precision)->bytes_per_token(context));
}

double DecodingSubject::token_at(const std::string& precision, int64_t position, int64_t count) {
  Parts& p = *parts_;
  const auto key = std::tuple(precision, position, int64_t{0});
  auto found = p.running.find(key);
  if (found == p.running.end()) {
    constexpr int64_t kRead = 1000;
    base::ensure(position % p.decoding_case.segment == kRead % p.decoding_case.segment,
                 "position {} is elsewhere in its segment", position);
    infer::Session session = p.fed(precision, kRead);
    const HandOver folder;
    const std::string file = folder.path("session.safetensors");
    session.save(file);
    // Keeps the means but pretends more tokens: the log of the sum of weights grows with the number of tokens.
    weights::TensorFile saved = weights::read_safetensors(file);
    for (auto& [name, tensor] : saved.tensors) {
      if (name.ends_with(".z")) tensor = tensor + std::log(static_cast<double>(position) / kRead);
    }
    saved.metadata["position"] = std::to_string(position);
    weights::write_safetensors(file, saved.tensors, saved.metadata);
    Parts::Running running;
    running.one = infer::Session::load(file, p.engine(precision));
    found = p.running.emplace(key, std::move(running)).first;
    found->second.next();
  }
  return median(seconds_of(count, [&] { found->second.next(); }));
}

void DecodingSubject::drop() {
  parts_->running.clear();
  parts_->engines.clear();
}

}  // namespace mnemo::bench
