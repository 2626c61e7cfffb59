#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "data/answers/task_file.h"
#include "models/model.h"
#include "tasks/algorithmic.h"
#include "tasks/language_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::tasks {
namespace {

using base::Node;
using Decoding = data::AnswerOptions::Decoding;

std::unique_ptr<models::Model> make_model(int64_t vocabulary, int64_t segment_size, std::vector<Node> memory) {
  Node node = Node::table({{"segment_size", segment_size}});
  node.set("embedding", Node::table({{"vocab_size", vocabulary}}));
  node.set("backbone",
           Node::table({{"num_layers", 2}, {"dim", 8}, {"num_heads", 2}, {"ffn_dim", 16}, {"init_std", 0.3}}));
  node.set("memory", Node::array(std::move(memory)));
  return models::build(base::read_options<models::ModelOptions>(node), 3, at::kDouble);
}

data::Corpus make_corpus(const std::string& path, data::DocumentRule::Kind separator = data::DocumentRule::Kind::none) {
  std::string text;
  for (int64_t i = 0; i < 40; ++i) text += std::to_string(i * i) + (i % 5 == 4 ? "\n\n" : " plums\n");
  base::write_file_atomic(path, text);
  data::TextOptions options;
  options.train = path;
  options.document_separator = separator;
  options.valid_fraction = 0.3;
  options.test_fraction = 0;
  return data::load_corpus(options);
}

TEST(LanguageModelTask, HeldOutNumberDoesNotDependOnSegmentation) {
  const test::TemporaryFolder folder;
  using Kind = data::DocumentRule::Kind;
  for (const Kind separator : {Kind::none, Kind::blank_line}) {
    const data::Corpus corpus = make_corpus(folder / "text", separator);
    // A cache that holds the whole text: every token sees its whole document, however it is divided.
    const auto model = make_model(corpus.tokenizer->size(), 8,
                                  {Node::table({{"type", "segment_cache"}, {"mem_len", 1000}})});
    const double whole = evaluate_text(*model, corpus.valid, {1, corpus.valid->size()}).nll();
    for (const int64_t segment_size : {1, 3, 8, 50}) {
      EXPECT_NEAR(evaluate_text(*model, corpus.valid, {1, segment_size}).nll(), whole, 1e-12) << segment_size;
    }
    const auto likelihood = evaluate_text(*model, corpus.valid);
    EXPECT_EQ(likelihood.count(), data::EvalStream(corpus.valid).total());
    if (separator == Kind::none) continue;
    EXPECT_NEAR(evaluate_text(*model, corpus.valid, {3, 4}).nll(), whole, 1e-12);
  }
}

TEST(LanguageModelTask, AContextStandsInFrontOfTheScoredTokens) {
  const test::TemporaryFolder folder;
  const data::Corpus corpus = make_corpus(folder / "text");
  const auto model = make_model(corpus.tokenizer->size(), 8, {});
  const int64_t size = 8, context = 5, tokens = corpus.valid->size() - 1;
  // By definition: of each window the targets that no earlier window has.
  std::vector<int64_t> text(static_cast<size_t>(tokens + 1));
  corpus.valid->read(0, text);
  const at::Tensor all = at::tensor(text, at::kLong);
  double sum = 0;
  for (int64_t begin = 0; begin < tokens; begin += size - context) {
    const int64_t first = std::max<int64_t>(0, begin - context), end = std::min(tokens, begin + size - context);
    core::Segment segment;
    segment.tokens = all.slice(0, first, end).unsqueeze(0);
    const at::Tensor nll = model->nll(model->forward(segment, model->initial_state(1)).hidden,
                                      all.slice(0, first + 1, end + 1).unsqueeze(0));
    sum += nll.slice(1, begin - first).sum().item<double>();
  }
  const auto found = evaluate_text(*model, corpus.valid, {1, size, true, context});
  EXPECT_EQ(found.count(), tokens);
  EXPECT_NEAR(found.nll(), sum / static_cast<double>(tokens), 1e-12);
  EXPECT_GT(std::abs(found.nll() - evaluate_text(*model, corpus.valid, {1, size, true}).nll()), 1e-6);
  LanguageModel task(corpus, {.eval_batch_size = 1, .reset_segments = true, .eval_context = context});
  EXPECT_NEAR(task.evaluate(*model, data::Part::valid)->at("nll"), found.nll(), 1e-12);
  test::expect_error<base::InputError>(
      [&] {
        evaluate_text(*model, corpus.valid, {1, size, false, context});
      },
      {"context of 5", "data.reset"});
  test::expect_error<base::InputError>(
      [&] {
        evaluate_text(*model, corpus.valid, {1, size, true, size});
      },
      {"context", "0 to 7", "found 8"});
}

TEST(LanguageModelTask, SegmentsThatStandAloneSeeNoMemory) {
  const test::TemporaryFolder folder;
  const data::Corpus corpus = make_corpus(folder / "text");
  const auto cached = make_model(corpus.tokenizer->size(), 8,
                                 {Node::table({{"type", "segment_cache"}, {"mem_len", 8}})});
  const auto plain = make_model(corpus.tokenizer->size(), 8, {});
  const double alone = evaluate_text(*plain, corpus.valid).nll();
  EXPECT_NEAR(evaluate_text(*cached, corpus.valid, {1, 0, true}).nll(), alone, 1e-12);
  EXPECT_GT(std::abs(evaluate_text(*cached, corpus.valid).nll() - alone), 1e-6);
  LanguageModel task(corpus, {.batch_size = 2, .segments_per_step = 3, .eval_batch_size = 1, .reset_segments = true});
  EXPECT_NEAR(task.evaluate(*cached, data::Part::valid)->at("nll"), alone, 1e-12);
  for (int step = 0; step < 2; ++step) {
    for (const data::Batch& segment : task.next(core::TokenInput{.segment_size = 8}))
      EXPECT_TRUE(segment.reset.defined() && segment.reset.all().item<bool>());
  }
}

TEST(LanguageModelTask, EvaluationLeavesTheModelAlone) {
  const test::TemporaryFolder folder;
  const data::Corpus corpus = make_corpus(folder / "text");
  const auto model = make_model(corpus.tokenizer->size(), 8, {Node::table({{"type", "grc"}, {"cache_len", 3}})});
  const auto before = core::save(model->initial_state(1));
  const LanguageModel task(corpus, {.batch_size = 2});
  const auto first = task.evaluate(*model, data::Part::valid), second = task.evaluate(*model, data::Part::valid);
  EXPECT_EQ(first->metrics, second->metrics);
  const auto after = core::save(model->initial_state(1));
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i].second, after[i].second)) << before[i].first;
  EXPECT_FALSE(task.evaluate(*model, data::Part::test).has_value());
  for (const auto& [name, tensor] : model->parameters().named()) EXPECT_FALSE(tensor.grad().defined()) << name;
}

TEST(LanguageModelTask, MetricsAreInTheUnitOfTheText) {
  metrics::Likelihood likelihood;
  likelihood.add(6.0, 3);
  const Evaluation characters = describe_likelihood(likelihood, "characters", 1.0);
  EXPECT_EQ(characters.metrics.size(), 3U);
  EXPECT_NEAR(characters.at("bits_per_character"), 2.0 / std::log(2.0), 1e-12);
  EXPECT_NEAR(characters.at("perplexity"), std::exp(2.0), 1e-12);
  const Evaluation words = describe_likelihood(likelihood, "words", 5.0);
  EXPECT_NEAR(words.at("bits_per_word"), 2.0 / std::log(2.0), 1e-12);
  EXPECT_NEAR(words.at("bits_per_character"), 0.4 / std::log(2.0), 1e-12);
  EXPECT_THROW(words.at("accuracy"), base::InternalError);
}

TEST(LanguageModelTask, TheUnitOfTheTextDecides) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xC3\xA4 plum\n";  // eight bytes, seven characters
  base::write_file_atomic(folder / "text", text);
  using Unit = data::TextOptions::Unit;
  for (const auto& [unit, metric] :
       {std::pair(Unit::bytes, "bits_per_byte"), std::pair(Unit::characters, "bits_per_character"),
        std::pair(Unit::words, "perplexity")}) {
    data::TextOptions options;
    options.train = folder / "text";
    options.unit = unit;
    options.valid_fraction = 0.3;
    options.test_fraction = 0;
    const data::Corpus corpus = data::load_corpus(options);
    const LanguageModel task(corpus, {.batch_size = 2});
    EXPECT_EQ(task.metric(), metric);
    const auto model = make_model(corpus.tokenizer->size(), 8, {});
    const Evaluation found = task.evaluate(*model, data::Part::valid).value();
    // The training loss in a curve has the same unit as its held-out points.
    EXPECT_NEAR(task.metric_of_loss(found.at("nll")).value(), found.at(task.metric()), 1e-9) << metric;
  }
}

TEST(AlgorithmicTask, SegmentsCoverASampleAndOnlyAnswersCount) {
  Algorithmic task({.task = "copy", .num_symbols = 4, .alphabet = 5}, {.batch_size = 3, .eval_samples = 20});
  const auto segments = task.next(core::TokenInput{.segment_size = 4});
  ASSERT_EQ(segments.size(), 3U);
  int64_t targets = 0;
  for (const data::Batch& segment : segments) {
    EXPECT_EQ(segment.input.tokens.sizes(), (std::vector<int64_t>{3, 4}));
    targets += segment.num_targets;
  }
  EXPECT_EQ(targets, 3 * task.source().answer_length());
  EXPECT_EQ(segments[0].num_targets, 0);
  // If the length does not divide the sample's, the last segment is shorter.
  EXPECT_EQ(task.next(core::TokenInput{.segment_size = 5}).back().input.tokens.size(1), 2);
  Algorithmic cut({.task = "copy", .num_symbols = 4, .answer = {.num_segments = 4}}, {.batch_size = 3});
  EXPECT_EQ(cut.segment_size(), 3);
  test::expect_error<base::InputError>([&] { cut.next(core::TokenInput{.segment_size = 4}); },
                                       {"copy: data.num_segments = 4", "expected model.segment_size = 3, found 4"});
  test::expect_error<base::InputError>([&] { Algorithmic({.answer = {.num_segments = 50}}, {}); },
                                       {"'num_segments': a sample of 72 tokens cannot be cut into 50 equal segments"});
}

TEST(AlgorithmicTask, ACurriculumCutsTrainingSamplesIntoMoreAndMoreSegments) {
  Algorithmic task(
      {.task = "copy", .num_symbols = 4, .answer = {.num_segments = 4, .curriculum = {1, 2}, .curriculum_steps = 3}},
      {.batch_size = 3});
  const core::TokenInput input{.segment_size = 3};
  std::vector<size_t> segments;
  for (int step = 0; step < 8; ++step) segments.push_back(task.next(input).size());
  EXPECT_EQ(segments, (std::vector<size_t>{1, 1, 1, 2, 2, 2, 4, 4}));
  // A resumed run goes on where it was.
  Algorithmic again(
      {.task = "copy", .num_symbols = 4, .answer = {.num_segments = 4, .curriculum = {1, 2}, .curriculum_steps = 6}},
      {.batch_size = 3});
  const weights::NamedTensors saved = task.save();
  again.load([&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  });
  EXPECT_EQ(again.next(input).size(), 2U);
  test::expect_error<base::InputError>(
      [&] {
        Algorithmic({.answer = {.num_segments = 3, .curriculum = {1, 50}, .curriculum_steps = 1}}, {});
      },
      {"curriculum", "50 equal segments"});
  test::expect_error<base::InputError>([&] { Algorithmic({.answer = {.num_segments = 3, .curriculum = {1}}}, {}); },
                                       {"curriculum_steps"});
}

TEST(AlgorithmicTask, AccuracyIsCountedOverTheAnswer) {
  const Algorithmic task({.task = "copy", .num_symbols = 4, .alphabet = 5},
                         {.batch_size = 3, .eval_batch_size = 7, .eval_samples = 20});
  const auto model = make_model(task.source().vocabulary_size(), 6, {});
  // A head that always predicts 2: correct for one symbol in `alphabet`.
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model->parameters().named()) tensor.zero_();
    model->parameters().find("head.bias")[2] = 1.0;
  }
  int64_t right = 0, count = 0;
  for (int64_t number = 0, left = 20; left > 0; left -= 7, ++number) {
    for (const auto& segment :
         data::cut_segments(task.source().batch(data::Part::valid, number, std::min<int64_t>(left, 7)), 6)) {
      right += (data::token_targets(segment) == 2).sum().item<int64_t>();
      count += segment.num_targets;
    }
  }
  const auto found = task.evaluate(*model, data::Part::valid);
  EXPECT_EQ(count, 20 * task.source().answer_length());
  EXPECT_EQ(found->at("accuracy"), static_cast<double>(right) / static_cast<double>(count));
  const double log_sum = std::log(static_cast<double>(core::token_input(model->input()).vocab_size - 1) +
                                  std::exp(1.0));
  EXPECT_NEAR(found->at("nll"), log_sum - static_cast<double>(right) / static_cast<double>(count), 1e-12);
  EXPECT_GT(right, 0);
}

TEST(AlgorithmicTask, PositionIsSavedAndChecked) {
  Algorithmic one({.task = "copy", .num_symbols = 4}, {.batch_size = 2}), two = one;
  one.next(core::TokenInput{.segment_size = 4});
  one.next(core::TokenInput{.segment_size = 4});
  const auto saved = one.save();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
  two.load(find);
  EXPECT_TRUE(at::equal(one.next(core::TokenInput{.segment_size = 4})[0].input.tokens,
                        two.next(core::TokenInput{.segment_size = 4})[0].input.tokens));
  EXPECT_THROW(two.load([](const std::string&) { return at::Tensor(); }), base::InputError);

  const auto refuses = [&](const data::AlgorithmicOptions& other) {
    test::expect_error<base::InputError>([&] { Algorithmic(other, {.batch_size = 2}).load(find); },
                                         {"data position: it belongs to other samples than those of [data]"});
  };
  refuses({.task = "reverse", .num_symbols = 4});
  refuses({.task = "copy", .num_symbols = 5});
  refuses({.task = "copy", .num_symbols = 4, .alphabet = 9});
  // How samples are divided and scored is no part of them.
  Algorithmic scored({.task = "copy", .num_symbols = 4, .answer = {.decoding = Decoding::teacher_forced}}, {});
  EXPECT_NO_THROW(scored.load(find));
  // A checkpoint of an earlier version has the batch alone.
  EXPECT_NO_THROW(two.load([&](const std::string& name) { return name == "next_batch" ? find(name) : at::Tensor(); }));
}

TEST(AlgorithmicTask, APositionBelongsToTheSamplesOfItsFile) {
  const test::TemporaryFolder folder;
  const auto of = [&](const std::string& lines) {
    base::write_file_atomic(folder / "task.tsv", "input\ttarget\tanswer\n" + lines);
    data::TaskFileOptions options;
    options.train = folder / "task.tsv";
    return Algorithmic(std::make_shared<data::TaskFiles>(options, false, 0), options.answer, {});
  };
  const auto saved = of("3 4\t4 5\t0 1\n").save();
  const auto find = [&](const std::string& name) {
    return std::find_if(saved.begin(), saved.end(), [&](const auto& one) { return one.first == name; })->second;
  };
  EXPECT_NO_THROW(of("3 4\t4 5\t0 1\n").load(find));
  test::expect_error<base::InputError>([&] { of("3 4\t4 6\t0 1\n").load(find); },
                                       {"data position: it belongs to other samples than those of [data]", "task.tsv"});
}

}  // namespace
}  // namespace mnemo::tasks
