#include "tasks/masked_text.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/ignore_target.h"
#include "models/model.h"
#include "tasks/registry.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::tasks {
namespace {

/// A text of the tokens a, b .. f, which are 5 to 10; [CLS] is 2, [SEP] 3, [MASK] 4.
struct MaskedTexts : testing::Test {
  data::Corpus corpus(const std::string& text) const {
    std::ofstream(folder / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n";
    std::ofstream(folder / "text.txt") << text;
    data::TextOptions options;
    options.train = folder / "text.txt";
    options.tokenizer = folder / "";
    options.document_separator = data::DocumentRule::Kind::blank_line;
    options.test_fraction = 0;
    options.valid_fraction = 0;
    return data::load_corpus(options);
  }
  static MaskedTextTaskOptions options(int64_t batch, int64_t segments, int64_t segment_size) {
    MaskedTextTaskOptions options;
    options.batch_size = batch;
    options.segments = segments;
    options.segment_size = segment_size;
    options.shuffle = false;
    options.masking.mask_token = 4;
    options.masking.vocabulary = 11;
    return options;
  }
  static std::unique_ptr<models::Model> model() {
    const base::Node node = base::parse_json(
        R"({"segment_size": 6, "embedding": {"vocab_size": 11}, "head": {"type": "masked_language_model"},
            "backbone": {"type": "encoder", "num_layers": 1, "dim": 8, "num_heads": 2, "ffn_dim": 16, "init_std": 0.5}})",
        "model");
    return models::build(base::read_options<models::ModelOptions>(node), 3, at::kDouble);
  }
  /// The text of a segment before it was masked.
  static at::Tensor original(const data::Batch& segment) {
    return at::where(data::token_targets(segment).eq(base::kIgnoreTarget), segment.input.tokens,
                     data::token_targets(segment));
  }
  test::TemporaryFolder folder;
};

TEST_F(MaskedTexts, SegmentsHoldOneDocumentBetweenSpecialTokens) {
  MaskedText task(corpus("a b c d e f\n\nf e\n"), options(3, 1, 6));
  const auto segments = task.next(core::TokenInput{.segment_size = 6});
  ASSERT_EQ(segments.size(), 1U);
  const at::Tensor expected = at::tensor({2, 5, 6, 7, 8, 3, 2, 9, 10, 3, 0, 0, 2, 10, 9, 3, 0, 0}, at::kLong)
                                  .view({3, 6});
  EXPECT_TRUE(at::equal(original(segments[0]), expected));
  EXPECT_TRUE(at::equal(segments[0].input.valid.sum(1), at::tensor({6, 4, 4}, at::kLong)));
  EXPECT_EQ(segments[0].num_targets, 3) << "of four tokens, or two, one";
  EXPECT_EQ(data::token_targets(segments[0]).ne(base::kIgnoreTarget).sum().item<int64_t>(), 3);
}

TEST_F(MaskedTexts, SeveralSegmentsGoThroughADocumentInOrder) {
  MaskedTextTaskOptions several = options(2, 2, 4);
  several.special_tokens = false;  // a memory's own
  MaskedText task(corpus("a b c d e f\n\nf e\n"), several);
  const auto segments = task.next(core::TokenInput{.segment_size = 4});
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_TRUE(at::equal(original(segments[0]), at::tensor({5, 6, 7, 8, 10, 9, 0, 0}, at::kLong).view({2, 4})));
  EXPECT_TRUE(at::equal(original(segments[1]), at::tensor({9, 10, 0, 0, 0, 0, 0, 0}, at::kLong).view({2, 4})));
  EXPECT_FALSE(segments[1].input.valid[1].any().item<bool>());
}

TEST_F(MaskedTexts, MasksAreDrawnAnewEveryEpochAndGoOnWhereTheyWere) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "a b c d e f a b c d e f\n\n";
  MaskedText task(corpus(text), options(20, 1, 14));
  const core::ModelInput input = core::TokenInput{.segment_size = 14};
  const at::Tensor first = data::token_targets(task.next(input)[0]), second = data::token_targets(task.next(input)[0]);
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_EQ(task.epoch(), 2.0);
  MaskedText resumed(corpus(text), options(20, 1, 14));
  EXPECT_TRUE(at::equal(data::token_targets(resumed.next(input)[0]), first));
  const auto saved = task.save();
  resumed.load([&](const std::string& name) {
    for (const auto& [key, tensor] : saved)
      if (key == name) return tensor;
    return at::Tensor();
  });
  EXPECT_TRUE(at::equal(resumed.next(input)[0].input.tokens, task.next(input)[0].input.tokens));
}

// A batch of several epochs has the masks that batches of one epoch have.
TEST_F(MaskedTexts, ASampleThatComesAgainInABatchHasOtherMasks) {
  std::string text;
  for (int i = 0; i < 3; ++i) text += "a b c d e f a b c d e f\n\n";
  const core::ModelInput input = core::TokenInput{.segment_size = 14};
  MaskedText small(corpus(text), options(8, 1, 14)), whole(corpus(text), options(3, 1, 14));
  const at::Tensor found = data::token_targets(small.next(input)[0]);
  std::vector<at::Tensor> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) epochs.push_back(data::token_targets(whole.next(input)[0]));
  EXPECT_TRUE(at::equal(found, at::cat(epochs).slice(0, 0, 8)));
  EXPECT_FALSE(at::equal(found.slice(0, 0, 3), found.slice(0, 3, 6)));
}

TEST_F(MaskedTexts, AnEvaluationHasItsOwnMasksAndCountsThemAlone) {
  data::Corpus texts = corpus("a b c d e f a b c d e f a b c d\n\nf e d c b a\n");
  texts.valid = texts.train;
  const auto encoder = model();
  MaskedTextTaskOptions one = options(2, 1, 6), other = one;
  one.eval_batch_size = 1;
  other.eval_batch_size = 5;
  MaskedText task(texts, one), again(texts, other);
  again.next(encoder->input());
  const auto found = task.evaluate(*encoder, data::Part::valid), same = again.evaluate(*encoder, data::Part::valid);
  EXPECT_EQ(found->predictions, 6) << "six pieces with one hidden token each";
  EXPECT_NEAR(found->at("nll"), same->at("nll"), 1e-12);
  EXPECT_NEAR(found->at("perplexity"), std::exp(found->at("nll")), 1e-9);
  EXPECT_FALSE(task.evaluate(*encoder, data::Part::test).has_value());

  // The head counts the rows to predict alone.
  const auto segment = task.next(encoder->input())[0];
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = encoder->forward(segment.input, encoder->initial_state(2)).hidden;
  const at::Tensor nll = encoder->nll(hidden, data::token_targets(segment));
  const at::Tensor kept = data::token_targets(segment).ne(base::kIgnoreTarget);
  const at::Tensor expected = -encoder->logits(hidden)
                                   .log_softmax(-1)
                                   .gather(-1, data::token_targets(segment).clamp_min(0).unsqueeze(-1))
                                   .squeeze(-1) *
                              kept;
  EXPECT_TRUE(at::allclose(nll, expected, 1e-12, 1e-12));
  EXPECT_GT(nll.sum().item<double>(), 0);
}

TEST_F(MaskedTexts, ASegmentNeedsRoomBesideItsSpecialTokens) {
  test::expect_error<base::InputError>([&] { MaskedText(corpus("a b\n"), options(1, 1, 2)); },
                                       {"data.max_length: expected more than the 2 special tokens"});
}

TEST_F(MaskedTexts, TheDatasOptionsReachTheTask) {
  std::string text;
  for (int i = 0; i < 6; ++i) text += "a b c d e f a b c d e f\n\n";
  corpus(text);  // writes the files
  const auto spec = [&](double mask_share, double random_share) {
    return task_spec(TaskTypes::all().options.complete(base::Node::table({{"type", "masked_text"},
                                                                          {"train", folder / "text.txt"},
                                                                          {"tokenizer", folder / ""},
                                                                          {"document_separator", "blank_line"},
                                                                          {"valid_fraction", 0.0},
                                                                          {"test_fraction", 0.0},
                                                                          {"mask_fraction", 0.5},
                                                                          {"mask_share", mask_share},
                                                                          {"random_share", random_share}})));
  };
  const base::Node node = base::Node::table({{"segment_size", 14}});
  const LoadedTask loaded = spec(1.0, 0.0)->load(base::read_options<models::ModelOptions>(node), {.batch_size = 6});
  const data::Batch segment = loaded.task->next(core::TokenInput{.segment_size = 14}).front();
  const at::Tensor hidden = data::token_targets(segment).ne(base::kIgnoreTarget);
  EXPECT_TRUE(at::equal(hidden.sum(1), at::full({6}, 6, at::kLong))) << "half of 12 tokens";
  EXPECT_TRUE(at::equal(segment.input.tokens.eq(4), hidden)) << "each is [MASK]";
  test::expect_error<base::InputError>([&] { spec(0.8, 0.3); }, {"random_share", "1.1"});
}

}  // namespace
}  // namespace mnemo::tasks
