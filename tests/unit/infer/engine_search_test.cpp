#include "infer/engine_search.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "models/pair_model.h"
#include "search/beam_search.h"
#include "tests/support/expect_error.h"
#include "tests/support/pair_models.h"

namespace mnemo::infer {
namespace {

struct EngineSearches : testing::TestWithParam<std::vector<std::string>> {
  EngineSearches() {
    models::ModelOptions options = test::pair_options(GetParam()[0], GetParam()[1], GetParam()[2]);
    if (GetParam()[3] == "pre") {
      options.backbone.pairs().norm = backbones::LayerStackOptions::Norm::pre;
      options.backbone.pairs().position.type = backbones::PositionOptions::Type::learned;
      options.backbone.pairs().dim = 15;
    }
    model = models::build_as<models::PairModel>(options, 4);
    at::manual_seed(6);
    source = test::pair_source(3, 7);
  }
  std::shared_ptr<const models::PairModel> model;
  at::Tensor source;
};

// Log probabilities step by step, with hypotheses that are dropped, repeated and exchanged (law 11).
TEST_P(EngineSearches, StepsAreTheModels) {
  ASSERT_EQ(unsupported_reason(*model), "");
  const c10::InferenceMode inference;
  EngineSearch fast(std::make_shared<const Engine>(model));
  const auto naive = search::make_model_decoder(*model);
  for (search::StepDecoder* decoder : {static_cast<search::StepDecoder*>(&fast), naive.get()}) {
    EXPECT_EQ(decoder->vocabulary(), 19);
    decoder->start(source, source != 1);
  }
  std::vector<int64_t> last = {2, 2, 2};
  const std::vector<std::vector<int64_t>> parents = {{0, 0, 1, 2, 2}, {4, 0, 0, 1, 3}, {2, 1}, {1, 0}};
  for (size_t step = 0; step < parents.size(); ++step) {
    const at::Tensor found = fast.log_probabilities(last), expected = naive->log_probabilities(last);
    EXPECT_LE((found - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>()) << step;
    fast.select(parents[step]);
    naive->select(parents[step]);
    last.clear();
    for (size_t i = 0; i < parents[step].size(); ++i) last.push_back(static_cast<int64_t>(4 + 3 * i + step));
  }
}

TEST_P(EngineSearches, FindsTheSameTranslations) {
  EngineSearch fast(std::make_shared<const Engine>(model));
  const search::BeamSearchOptions options{.beam_size = 4, .max_len_b = 9};
  const auto found = search::beam_search(fast, {}, source, source != 1, options);
  const auto expected = search::beam_search(*model, {}, source, source != 1, options);
  for (size_t b = 0; b < 3; ++b) {
    ASSERT_EQ(found[b].size(), expected[b].size());
    for (size_t k = 0; k < found[b].size(); ++k) {
      EXPECT_EQ(found[b][k].tokens, expected[b][k].tokens);
      EXPECT_NEAR(found[b][k].score, expected[b][k].score, 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attentions, EngineSearches,
                         testing::Values(std::vector<std::string>{"softmax", "softmax", "softmax", "post"},
                                         std::vector<std::string>{"softmax", "softmax", "softmax", "pre"},
                                         std::vector<std::string>{"abc", "abc", "softmax", "post"},
                                         std::vector<std::string>{"linear", "linformer", "abc", "pre"},
                                         std::vector<std::string>{"sliding_window", "abc", "linear", "post"},
                                         std::vector<std::string>{"abc", "abc:random", "softmax", "post"},
                                         std::vector<std::string>{"softmax", "abc:window", "softmax", "post"},
                                         std::vector<std::string>{"softmax", "abc:linformer", "softmax", "post"},
                                         std::vector<std::string>{"softmax", "abc:clustering", "softmax", "post"},
                                         std::vector<std::string>{"linear", "linear:elu", "softmax", "post"},
                                         std::vector<std::string>{"linear", "linear:t2r", "softmax", "pre"},
                                         std::vector<std::string>{"linear", "linear:rfa", "softmax", "post"},
                                         std::vector<std::string>{"linear", "linear:rfa_authors", "softmax", "post"}),
                         [](const auto& info) {
                           std::string name = info.param[0] + "_" + info.param[1] + "_" + info.param[3];
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// Eight random projections over many equal tokens: the sum that is divided by is then often far below -1.
TEST(EngineSearch, DividesByTheSizeOfANegativeSum) {
  models::ModelOptions options = test::pair_options("softmax", "linear:rfa_authors");
  options.backbone.pairs().decoder.cross_attention.set("num_features", 8);
  options.backbone.pairs().decoder.cross_attention.set("tau", 0.2);
  const std::shared_ptr<const models::PairModel> model = models::build_as<models::PairModel>(options, 4);
  const at::Tensor source = at::full({15, 200}, 5, at::kLong), valid = at::ones({15, 200}, at::kBool);
  const c10::InferenceMode inference;
  EngineSearch fast(std::make_shared<const Engine>(model));
  const auto naive = search::make_model_decoder(*model);
  fast.start(source, valid);
  naive->start(source, valid);
  std::vector<int64_t> words(15);
  std::iota(words.begin(), words.end(), 4);
  EXPECT_LE((fast.log_probabilities(words) - naive->log_probabilities(words)).abs().max().item<double>(), 1e-4);
}

TEST(EngineSearch, FewerBitsStayNear) {
  const std::shared_ptr<const models::PairModel> model = models::build_as<models::PairModel>(test::pair_options(), 4);
  at::manual_seed(6);
  const at::Tensor source = test::pair_source(2, 6);
  const auto expected = [&] {
    const auto naive = search::make_model_decoder(*model);
    const c10::InferenceMode inference;
    naive->start(source, source != 1);
    return naive->log_probabilities(std::vector<int64_t>{2, 2});
  }();
  for (const ops::Precision precision : {ops::Precision::bf16, ops::Precision::int8, ops::Precision::w8a8}) {
    EngineSearch fast(std::make_shared<const Engine>(model, EngineOptions{precision}));
    fast.start(source, source != 1);
    EXPECT_LE((fast.log_probabilities(std::vector<int64_t>{2, 2}) - expected).abs().max().item<double>(), 0.1);
  }
}

// The encoder runs in the precision of the engine where that is faster than the model's own products.
TEST(EngineSearch, ReadsTheSourceWithQuantizedWeights) {
  const std::shared_ptr<const models::PairModel> model = models::build_as<models::PairModel>(test::pair_options(), 4);
  const at::Tensor source = test::pair_source(2, 6), valid = source != 1;
  const auto rows = [](const core::State& read) { return models::SourceSide::output(read.child("source")).rows; };
  const c10::InferenceMode inference;
  const core::State before = model->initial_state(2);
  const at::Tensor expected = rows(model->read_source(source, valid, core::Mode::evaluate, before));
  double last = 0.0;
  for (const auto& [precision, tolerance] : {std::pair{ops::Precision::float32, 0.0},
                                             {ops::Precision::bf16, 0.0},
                                             {ops::Precision::int8, 0.02},
                                             {ops::Precision::w8a8, 0.04}}) {
    const Engine engine(model, EngineOptions{precision});
    const double off = ((rows(engine.read_source(source, valid, before)) - expected).norm() / expected.norm())
                           .item<double>();
    EXPECT_LE(off, tolerance) << ops::name_of(precision);
    EXPECT_TRUE(off > last || tolerance == 0.0) << ops::name_of(precision);
    last = off;
  }
}

TEST(EngineSearch, SaysWhatItDoesNotSupport) {
  models::ModelOptions options = test::pair_options("softmax", "abc:luna");
  const auto model = models::build_as<models::PairModel>(options, 4);
  EXPECT_NE(unsupported_reason(*model).find("cross-attention 'abc'"), std::string::npos);
}

}  // namespace
}  // namespace mnemo::infer
