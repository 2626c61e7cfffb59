#include "tasks/span_text.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/ignore_target.h"
#include "models/model.h"
#include "tasks/registry.h"
#include "tests/support/pair_models.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::tasks {
namespace {

/// A text of the tokens a, b .. f, which are 5 to 10; <extra_id_0> .. <extra_id_7> are 11 to 18.
struct SpanTexts : testing::Test {
  void write(const std::string& text) const {
    std::ofstream words(folder / "vocab.txt");
    words << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\n";
    for (int i = 0; i < 8; ++i) words << "<extra_id_" << i << ">\n";
    std::ofstream(folder / "text.txt") << text;
  }
  data::Corpus corpus(const std::string& text) const {
    write(text);
    data::TextOptions options;
    options.train = folder / "text.txt";
    options.tokenizer = folder / "";
    options.document_separator = data::DocumentRule::Kind::blank_line;
    options.test_fraction = 0;
    options.valid_fraction = 0;
    return data::load_corpus(options);
  }
  /// The special tokens of a pair model's options: padding is 1, the end of a text 2.
  static SpanTextTaskOptions options(int64_t batch) {
    SpanTextTaskOptions options;
    options.batch_size = batch;
    options.shuffle = false;
    options.corruption.density = 0.3;
    options.corruption.mean_span = 2.0;
    options.corruption.sentinels = {11, 12, 13, 14, 15, 16, 17, 18};
    options.corruption.end = 2;
    return options;
  }
  /// Documents of one text, so that samples differ in their spans alone.
  static std::string twelve_tokens(int documents) {
    std::string text;
    for (int i = 0; i < documents; ++i) text += "a b c d e f a b c d e f\n\n";
    return text;
  }
  const core::ModelInput input = core::PairInput{};
  test::TemporaryFolder folder;
};

TEST_F(SpanTexts, SpansAreDrawnAnewEveryEpochAndGoOnWhereTheyWere) {
  SpanText task(corpus(twelve_tokens(20)), options(20));
  const data::TokenSegment first = task.next(input)[0], second = task.next(input)[0];
  EXPECT_FALSE(at::equal(first.targets, second.targets));
  EXPECT_FALSE(first.targets.eq(first.targets[0]).all().item<bool>()) << "samples have spans of their own";
  EXPECT_EQ(task.epoch(), 2.0);
  SpanText resumed(corpus(twelve_tokens(20)), options(20));
  EXPECT_TRUE(at::equal(resumed.next(input)[0].targets, first.targets));
  const auto saved = task.save();
  resumed.load([&](const std::string& name) {
    for (const auto& [key, tensor] : saved)
      if (key == name) return tensor;
    return at::Tensor();
  });
  const data::TokenSegment expected = task.next(input)[0], found = resumed.next(input)[0];
  EXPECT_TRUE(at::equal(found.source, expected.source));
  EXPECT_TRUE(at::equal(found.targets, expected.targets));
}

TEST_F(SpanTexts, AnEvaluationHasItsOwnSpansWhateverTheBatch) {
  data::Corpus texts = corpus("a b c d e f a b c d\n\nf e d c b a\n\n" + twelve_tokens(3) + "b d f\n");
  texts.valid = texts.train;
  const auto model = models::build(test::pair_options(), 3, at::kDouble);
  SpanTextTaskOptions one = options(2), other = one;
  one.eval_batch_size = 1;
  other.eval_batch_size = 4;
  SpanText task(texts, one), again(texts, other);
  const auto found = task.evaluate(*model, data::Part::valid);
  again.next(model->input());
  const auto same = again.evaluate(*model, data::Part::valid);
  // Documents of 10, 6, 12, 12, 12 and 3 tokens lose 3, 2, 4, 4, 4 and 1, in 2, 1, 2, 2, 2 and 1 spans; plus six ends.
  EXPECT_EQ(found->predictions, 18 + 10 + 6);
  EXPECT_EQ(same->predictions, found->predictions);
  EXPECT_NEAR(found->at("nll"), same->at("nll"), 1e-12);
  EXPECT_NEAR(found->at("perplexity"), std::exp(found->at("nll")), 1e-9 * found->at("perplexity"));
  EXPECT_FALSE(task.evaluate(*model, data::Part::test).has_value());
}

TEST_F(SpanTexts, TheDatasOptionsReachTheTask) {
  write(twelve_tokens(6));
  const auto spec = task_spec(TaskTypes::all().options.complete(base::Node::table({{"type", "span_corruption"},
                                                                                   {"train", folder / "text.txt"},
                                                                                   {"tokenizer", folder / ""},
                                                                                   {"document_separator", "blank_line"},
                                                                                   {"valid_fraction", 0.0},
                                                                                   {"test_fraction", 0.0},
                                                                                   {"density", 0.5},
                                                                                   {"mean_span", 2.0}})));
  const LoadedTask loaded = spec->load(test::pair_options(), {.batch_size = 6});
  const data::TokenSegment segment = loaded.task->next(input).front();
  // Six tokens of a text in three spans, with their sentinels and the end; as many stay.
  EXPECT_EQ(segment.targets.sizes(), at::IntArrayRef({6, 10}));
  EXPECT_EQ(segment.source.sizes(), at::IntArrayRef({6, 10}));
  for (const at::Tensor& side : {segment.targets, segment.source}) {
    EXPECT_TRUE(at::equal(side.ge(11).sum(1), at::full({6}, 3, at::kLong)));
    EXPECT_TRUE(at::equal(at::logical_and(side.ge(5), side.le(10)).sum(1), at::full({6}, 6, at::kLong)));
    EXPECT_TRUE(side.select(1, 9).eq(2).all().item<bool>());
  }
}

}  // namespace
}  // namespace mnemo::tasks
