#include "models/replaced_memory.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "base/error.h"
#include "models/pair_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/pair_models.h"

namespace mnemo::models::replaced_memory_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

std::unique_ptr<Model> model_with(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "[embedding]\nvocab_size = 7\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = 6\n", "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  auto model = build(base::read_options<ModelOptions>(node), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(3);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.3);
  return model;
}

core::Segment segment_of(const at::Tensor& tokens, core::Part part = {}) {
  core::Segment segment;
  segment.tokens = tokens;
  segment.part = part;
  return segment;
}

/// The state after a first segment.
core::State carried(const core::Model& model, const at::Tensor& tokens) {
  return model.forward(segment_of(tokens), model.initial_state(tokens.size(0))).state;
}

core::State with(const core::State& state, const std::function<at::Tensor(const at::Tensor&)>& change) {
  return state.map([&](const core::Field&, const at::Tensor& tensor) {
    return tensor.is_floating_point() ? change(tensor) : tensor;
  });
}

/// Keeps the state that it is given.
class Watched final : public core::Model {
 public:
  Watched(const core::Model& model, core::State& seen) : model_(model), seen_(seen) {}
  core::StepResult forward(const core::Segment&, const core::State& state) const override {
    seen_ = state;
    return {};
  }
  core::State initial_state(int64_t batch) const override { return model_.initial_state(batch); }
  void commit(const core::State&) override {}
  int64_t bptt_depth(const std::string&) const override { return 0; }
  at::Tensor logits(const at::Tensor& hidden) const override { return hidden; }
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor&) const override { return hidden; }
  const layers::ParameterSet& parameters() const override { return model_.parameters(); }
  const core::ModelInput& input() const override { return model_.input(); }

 private:
  const core::Model& model_;
  core::State& seen_;
};

TEST(ReplacedMemory, ZerosStandWhereASegmentStarts) {
  const at::NoGradGuard no_grad;
  for (const std::vector<std::string>& memory :
       {std::vector<std::string>{"memory[0].type=recurrent_tokens"},
        {"memory[0].type=segment_cache", "memory[0].mem_len=6", "backbone.attention.type=relative"},
        {"memory[0].type=grc", "memory[0].lifetime=sequence", "memory[0].cache_len=3"}}) {
    const auto model = model_with(memory);
    const ReplacedMemory zeros(*model, "zeros", "test");
    const at::Tensor tokens = Numbers(1).tokens({2, 5}, 7), more = Numbers(2).tokens({2, 5}, 7);
    const core::State state = carried(*model, tokens);
    const at::Tensor expected = model
                                    ->forward(segment_of(more),
                                              with(state, [](const at::Tensor& t) { return at::zeros_like(t); }))
                                    .hidden;
    EXPECT_EQ(difference(zeros.forward(segment_of(more), state).hidden, expected), 0.0) << memory[0];
    EXPECT_GT(difference(model->forward(segment_of(more), state).hidden, expected), 1e-6) << memory[0];
    // The parts of a segment read what its beginning read.
    const core::StepResult begin = zeros.forward(segment_of(more.narrow(1, 0, 2), {true, false}), state),
                           end = zeros.forward(segment_of(more.narrow(1, 2, 3), {false, true}), begin.state);
    EXPECT_LE(difference(at::cat({begin.hidden, end.hidden}, 1), expected), 1e-12) << memory[0];
  }
}

// A slot's mask or sum of weights says how much was written, not what.
TEST(ReplacedMemory, MasksAndSumsOfWeightsStay) {
  const at::NoGradGuard no_grad;
  for (const std::vector<std::string>& attention :
       {std::vector<std::string>{"backbone.attention.type=abc", "backbone.attention.num_slots=7",
                                 "backbone.attention.control.type=window", "backbone.attention.mask_empty_slots=true"},
        {"backbone.attention.type=abc", "backbone.attention.control.type=mlp",
         "backbone.attention.control.activation=relu"},
        {"backbone.attention.type=linear", "backbone.attention.feature_map=elu"}}) {
    const auto model = model_with(attention);
    const core::State state = carried(*model, Numbers(1).tokens({2, 5}, 7));
    for (const char* with : {"zeros", "noise"}) {
      core::State seen;
      ReplacedMemory(Watched(*model, seen), with, "test").forward(segment_of(Numbers(2).tokens({2, 2}, 7)), state);
      const auto before = state.fields(), after = seen.fields();
      ASSERT_EQ(before.size(), after.size());
      int64_t kept = 0;
      for (size_t i = 0; i < before.size(); ++i) {
        if (!before[i].second.is_floating_point()) continue;
        const bool is_weight = before[i].first.path.ends_with(".z");
        kept += is_weight;
        EXPECT_EQ(at::equal(before[i].second, after[i].second), is_weight) << before[i].first.path << " " << with;
      }
      EXPECT_GT(kept, 0) << attention[0];
    }
  }
}

TEST(ReplacedMemory, NoiseHasTheMeanAndDeviationOfTheField) {
  const at::NoGradGuard no_grad;
  const auto model = model_with({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=4000"});
  core::State seen;
  const Watched watched(*model, seen);
  const core::State state = with(model->initial_state(1), [](const at::Tensor& t) {
    at::Tensor numbers = Numbers(5).normal(t.sizes()) * 3.0 + 2.0;
    numbers.view({-1}).narrow(0, 0, 100).fill_(-std::numeric_limits<double>::infinity());
    return numbers;
  });
  const core::Segment segment = segment_of(Numbers(1).tokens({1, 2}, 7));
  ReplacedMemory(watched, "noise", "test").forward(segment, state);
  const at::Tensor first = seen.fields().front().second.view({-1});
  EXPECT_TRUE(first.narrow(0, 0, 100).isinf().all().item<bool>()) << "what is not finite stays";
  const at::Tensor noise = first.narrow(0, 100, first.numel() - 100);
  EXPECT_NEAR(noise.mean().item<double>(), 2.0, 0.1);
  EXPECT_NEAR(noise.std().item<double>(), 3.0, 0.1);
  EXPECT_GT(difference(noise, state.fields().front().second.view({-1}).narrow(0, 100, noise.numel())), 1.0);
  ReplacedMemory(watched, "noise", "test").forward(segment, state);
  EXPECT_TRUE(at::equal(seen.fields().front().second.view({-1}), first)) << "the same seed, the same noise";
}

// What a translation model carries meets its next source; a target goes on reading the last one.
TEST(ReplacedMemory, OfATranslationModelStandsBeforeASource) {
  const at::NoGradGuard no_grad;
  ModelOptions options = test::pair_options();
  options.backbone.pairs().encoder.memory = {ModelOptions::memory_types().read(
      base::Node::table({{"type", "grc"}, {"cache_len", 3}, {"lifetime", "sequence"}}))};
  const auto model = build_as<PairModel>(options, 3, at::kDouble);
  const auto zeros = replaced_memory(*model, "zeros", "test");
  const at::Tensor first = at::tensor({4, 5, 6, 2}, at::kLong).unsqueeze(0),
                   next = at::tensor({7, 5, 2}, at::kLong).unsqueeze(0);
  const core::State before = model->read_source(first, {}, core::Mode::evaluate, model->initial_state(1));
  const auto rows = [&](const core::ReadsSource& reader, const core::State& state) {
    return SourceSide::output(reader.read_source(next, {}, core::Mode::evaluate, state).child("source")).rows;
  };
  const at::Tensor found = rows(core::source_reader(*zeros), before);
  EXPECT_EQ(difference(found, rows(*model, with(before, [](const at::Tensor& t) { return at::zeros_like(t); }))), 0.0);
  EXPECT_GT(difference(found, rows(*model, before)), 1e-6);
  const core::Segment target = segment_of(at::tensor({4, 6}, at::kLong).unsqueeze(0));
  EXPECT_EQ(difference(zeros->forward(target, before).hidden, model->forward(target, before).hidden), 0.0);
  core::Segment pair = target;
  pair.source = next;
  EXPECT_GT(difference(zeros->forward(pair, before).hidden, model->forward(pair, before).hidden), 1e-9);
}

TEST(ReplacedMemory, MistakesAreNamed) {
  const auto plain = model_with({}), rmt = model_with({"memory[0].type=recurrent_tokens"});
  expect_error<base::InputError>([&] { ReplacedMemory(*plain, "zeros", "eval: --memory"); },
                                 {"eval: --memory", "carried between segments", "found none"});
  for (const std::vector<std::string>& nothing :
       {std::vector<std::string>{"memory[0].type=segment_cache", "memory[0].mem_len=0"},
        {"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=0"}}) {
    expect_error<base::InputError>([&] { ReplacedMemory(*model_with(nothing), "zeros", "eval: --memory"); },
                                   {"eval: --memory", "found none"});
  }
  expect_error<base::InputError>([&] { ReplacedMemory(*rmt, "ones", "eval: --memory"); },
                                 {"eval: --memory: expected zeros or noise, found 'ones'"});
  ReplacedMemory replaced(*rmt, "zeros", "test");
  EXPECT_THROW(replaced.commit(rmt->initial_state(1)), base::InternalError);
}

}  // namespace
}  // namespace mnemo::models::replaced_memory_test
