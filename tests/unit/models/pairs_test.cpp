// Laws of translation models: whole and in parts, padding, state operations, and errors.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/state.h"
#include "models/pair_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/pair_models.h"

namespace mnemo::models {
namespace {

using test::pair_options;
using test::pair_segment;
using test::pair_source;

struct PairModels : testing::TestWithParam<std::vector<std::string>> {
  std::unique_ptr<Model> make() const {
    return build(pair_options(GetParam()[0], GetParam()[1], GetParam()[2]), 5, at::kDouble);
  }
};

// A target read token by token, and from a state saved in between, gives the logits of the whole (law 1, 8).
TEST_P(PairModels, TokenByTokenIsTheWhole) {
  const at::NoGradGuard no_grad;
  const auto model = make();
  at::manual_seed(1);
  const at::Tensor source = pair_source(3, 6), tokens = at::randint(4, 19, {3, 5}, at::kLong);
  const core::StepResult whole = model->forward(pair_segment(source, tokens), model->initial_state(3));
  core::State state = model->initial_state(3);
  std::vector<at::Tensor> hidden;
  for (int64_t i = 0; i < 5; ++i) {
    core::Segment segment = pair_segment(i == 0 ? source : at::Tensor(), tokens.narrow(1, i, 1));
    segment.part = {i == 0, i == 4};
    core::StepResult step = model->forward(segment, state);
    hidden.push_back(step.hidden);
    const auto saved = core::save(step.state);
    state = core::load(step.state, [&](const std::string& path) {
      for (const auto& [name, tensor] : saved) {
        if (name == path) return tensor;
      }
      return at::Tensor();
    });
  }
  EXPECT_LE((at::cat(hidden, 1) - whole.hidden).abs().max().item<double>(), 1e-12);
}

// A sentence does not depend on the others of its batch, on padding or on the side of the padding.
TEST_P(PairModels, PaddingChangesNothing) {
  const at::NoGradGuard no_grad;
  const auto model = make();
  at::manual_seed(2);
  const at::Tensor source = pair_source(3, 6), tokens = at::randint(4, 19, {3, 4}, at::kLong);
  const at::Tensor whole = model->forward(pair_segment(source, tokens), model->initial_state(3)).hidden;
  for (int64_t b = 0; b < 3; ++b) {
    const at::Tensor own = source[b].narrow(0, 0, 6 - b).unsqueeze(0), target = tokens[b].unsqueeze(0);
    const at::Tensor alone = model->forward(pair_segment(own, target), model->initial_state(1)).hidden;
    EXPECT_LE((alone - whole[b]).abs().max().item<double>(), 1e-12) << b;
    if (GetParam()[1] == "linformer" || GetParam()[2] == "linformer") continue;  // mixes columns by their number
    const at::Tensor left = at::cat({at::ones({1, 3}, at::kLong), own}, 1);
    const at::Tensor padded = model->forward(pair_segment(left, target), model->initial_state(1)).hidden;
    EXPECT_LE((padded - alone).abs().max().item<double>(), 1e-12) << b;
  }
}

// select_batch of an open target, rows repeated too, equals recomputing (law 8), as beam search needs.
TEST_P(PairModels, StatesCanBeSelectedAndRepeated) {
  const at::NoGradGuard no_grad;
  const auto model = make();
  at::manual_seed(4);
  const at::Tensor source = pair_source(2, 5), tokens = at::randint(4, 19, {2, 3}, at::kLong);
  core::Segment first = pair_segment(source, tokens.narrow(1, 0, 2));
  first.part = {true, false};
  const core::State state = model->forward(first, model->initial_state(2)).state;
  const at::Tensor rows = at::tensor({int64_t{1}, int64_t{0}, int64_t{1}});
  core::Segment next = pair_segment({}, tokens.narrow(1, 2, 1).index_select(0, rows));
  next.part = {false, false};
  const at::Tensor found = model->forward(next, core::select_batch(state, rows)).hidden;
  const at::Tensor expected = model
                                  ->forward(pair_segment(source.index_select(0, rows), tokens.index_select(0, rows)),
                                            model->initial_state(3))
                                  .hidden.narrow(1, 2, 1);
  EXPECT_LE((found - expected).abs().max().item<double>(), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Attentions, PairModels,
                         testing::Values(std::vector<std::string>{"softmax", "softmax", "softmax"},
                                         std::vector<std::string>{"abc", "abc", "softmax"},
                                         std::vector<std::string>{"abc", "abc", "abc"},
                                         std::vector<std::string>{"linear", "linear", "linear"},
                                         std::vector<std::string>{"sliding_window", "linformer", "linformer"}),
                         [](const auto& info) { return info.param[0] + "_" + info.param[1] + "_" + info.param[2]; });

// In training, layers that map rows by themselves leave padding out. A loss of real rows keeps its value and gradients:
// with an observer all rows are computed.
TEST_P(PairModels, PaddingLeftOutOfTrainingChangesNothing) {
  for (const auto norm : {EncoderDecoderOptions::Norm::pre, EncoderDecoderOptions::Norm::post}) {
    ModelOptions options = pair_options(GetParam()[0], GetParam()[1], GetParam()[2]);
    options.backbone.pairs().norm = norm;
    options.backbone.pairs().dropout = 0.2;
    const auto model = build(options, 5, at::kDouble);
    at::manual_seed(2);
    core::Segment segment = pair_segment(pair_source(3, 6), at::randint(4, 19, {3, 5}, at::kLong));
    segment.valid = at::arange(5).unsqueeze(0) < at::tensor({5, 2, 3}, at::kLong).unsqueeze(1);
    segment.mode = core::Mode::train;
    const at::Tensor weights = at::randn({3, 5, 12}, at::kDouble) * segment.valid.unsqueeze(-1);
    const auto step = [&](const core::HiddenObserver& observer) {
      at::manual_seed(7);
      model->parameters().zero_grad();
      const at::Tensor loss = (model->forward(segment, model->initial_state(3), {}, observer).hidden * weights).sum();
      loss.backward();
      std::vector<at::Tensor> found = {loss.detach()};
      for (const auto& [name, tensor] : model->parameters().named()) {
        if (tensor.grad().defined()) found.push_back(tensor.grad().clone());  // the head has none
      }
      return found;
    };
    const auto packed = step({}), all = step([](std::string_view, const at::Tensor&) {});
    ASSERT_EQ(packed.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_LE((packed[i] - all[i]).abs().max().item<double>(),
                1e-11 * std::max(1.0, all[i].abs().max().item<double>()));
  }
}

TEST(PairModel, ADecoderIsCausalBitForBit) {
  const at::NoGradGuard no_grad;
  const auto model = build(pair_options(), 5, at::kDouble);
  at::manual_seed(1);
  const at::Tensor source = pair_source(1, 5);
  at::Tensor tokens = at::randint(4, 19, {1, 5}, at::kLong);
  const at::Tensor before = model->forward(pair_segment(source, tokens), model->initial_state(1)).hidden;
  tokens[0][3] = tokens[0][3].item<int64_t>() == 7 ? 8 : 7;
  const at::Tensor after = model->forward(pair_segment(source, tokens), model->initial_state(1)).hidden;
  EXPECT_TRUE(at::equal(before.narrow(1, 0, 3), after.narrow(1, 0, 3)));
  EXPECT_FALSE(at::equal(before[0][3], after[0][3]));
}

TEST(PairModel, UnsupportedCombinationsAreRefusedByName) {
  const auto refused = [](ModelOptions options, std::initializer_list<std::string> words) {
    test::expect_error<base::InputError>([&] { build(options); }, words);
  };
  refused(pair_options("softmax", "relative"), {"'relative'", "encoder's output"});
  refused(pair_options("softmax", "lsh"), {"'lsh'"});
  refused(pair_options("linformer"), {"linformer", "causal"});
  ModelOptions untied = pair_options();
  untied.embedding.shared = EmbeddingOptions::Shared::none;
  refused(untied, {"head.tied = false"});
  ModelOptions sizes = pair_options();
  sizes.embedding.source_vocab_size = 21;
  refused(sizes, {"one vocabulary"});
  ModelOptions special = pair_options();
  special.tokens.eos = 19;
  refused(special, {"eos", "vocab_size"});
}

TEST(PairModel, TokensOutsideAVocabularyAreErrors) {
  const auto model = build(pair_options(), 5);
  const at::Tensor inside = at::full({1, 2}, 4, at::kLong);
  for (const int64_t token : {int64_t{19}, int64_t{-1}}) {
    const at::Tensor outside = at::full({1, 2}, token, at::kLong);
    for (const auto& segment : {pair_segment(outside, inside), pair_segment(inside, outside)}) {
      test::expect_error<base::InputError>([&] { model->forward(segment, model->initial_state(1)); },
                                           {"found " + std::to_string(token), "0 to 18"});
    }
  }
}

TEST(PairModel, WithoutSourceAndStateIsAnError) {
  const auto model = build(pair_options(), 5);
  test::expect_error<base::InputError>(
      [&] {
        model->forward(pair_segment({}, at::zeros({1, 1}, at::kLong)), model->initial_state(1));
      },
      {"expected a source"});
}

}  // namespace
}  // namespace mnemo::models
