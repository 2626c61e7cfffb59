#include "tasks/classification.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <set>

#include "base/error.h"
#include "base/ignore_target.h"
#include "data/answers/listops_set.h"
#include "metrics/agreement.h"
#include "models/model.h"
#include "tasks/start_documents.h"
#include "tests/support/expect_error.h"

namespace mnemo::tasks {
namespace {

/// Documents of these lengths; the tokens of document i are i + 1, i + 2, ... and its label is i.
std::shared_ptr<data::LabelledDocuments> documents_of(const std::vector<int64_t>& lengths) {
  auto documents = std::make_shared<data::LabelledDocuments>(100, static_cast<int64_t>(lengths.size()));
  for (size_t i = 0; i < lengths.size(); ++i) {
    std::vector<int32_t> tokens;
    for (int64_t t = 0; t < lengths[i]; ++t) tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(i) + 1 + t));
    documents->add(tokens, static_cast<int64_t>(i));
  }
  return documents;
}

TEST(Classification, DocumentsOfSeveralSegmentsAreAlignedRight) {
  const auto documents = documents_of({3, 8, 10, 1});
  const auto segments = document_segments(*documents, {0, 1, 2, 3}, 4, {.max_length = 100, .ask_every_segment = true});
  ASSERT_EQ(segments.size(), 3U);
  const std::vector<std::vector<int64_t>> counts = {{0, 0, 2, 0}, {0, 4, 4, 0}, {3, 4, 4, 1}};
  const std::vector<std::vector<bool>> starts = {
      {false, false, true, false}, {false, true, false, false}, {true, false, false, true}};
  std::vector<std::vector<int64_t>> read(4);
  for (size_t s = 0; s < 3; ++s) {
    int64_t targets = 0;
    for (int64_t b = 0; b < 4; ++b) {
      const int64_t expected = counts[s][static_cast<size_t>(b)];
      const at::Tensor valid = segments[s].input.valid[b];
      EXPECT_EQ(valid.sum().item<int64_t>(), expected);
      EXPECT_EQ(valid.narrow(0, 0, expected).sum().item<int64_t>(), expected) << "padding is on the right";
      for (int64_t t = 0; t < expected; ++t)
        read[static_cast<size_t>(b)].push_back(segments[s].input.tokens[b][t].item<int64_t>());
      EXPECT_EQ(data::token_targets(segments[s])[b][0].item<int64_t>(), expected > 0 ? b : base::kIgnoreTarget);
      EXPECT_TRUE(s == 0 || segments[s].reset[b].item<bool>() == starts[s][static_cast<size_t>(b)]);
      targets += expected > 0 ? 1 : 0;
    }
    EXPECT_EQ(segments[s].num_targets, targets);
  }
  EXPECT_EQ(read[2], (std::vector<int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(read[0], (std::vector<int64_t>{1, 2, 3}));

  const auto last = document_segments(*documents, {0, 1, 2, 3}, 4, {.max_length = 100});
  EXPECT_EQ(last[0].num_targets + last[1].num_targets, 0);
  EXPECT_EQ(last[2].num_targets, 4);
}

TEST(Classification, AlignedLeftTheLastSegmentIsShort) {
  const auto documents = documents_of({3, 8, 10});
  const auto segments = document_segments(*documents, {0, 1, 2}, 4, {.max_length = 100, .align_left = true});
  ASSERT_EQ(segments.size(), 3U);
  const std::vector<std::vector<int64_t>> counts = {{0, 0, 4}, {0, 4, 4}, {3, 4, 2}};
  for (size_t s = 0; s < 3; ++s) {
    for (int64_t b = 0; b < 3; ++b)
      EXPECT_EQ(segments[s].input.valid[b].sum().item<int64_t>(), counts[s][static_cast<size_t>(b)]) << s << b;
  }
  EXPECT_EQ(segments[2].input.tokens[2][0].item<int64_t>(), 11);
  EXPECT_EQ(segments[2].num_targets, 3);
}

TEST(Classification, APositionBelongsToTheLabelsToo) {
  const auto task_of = [](int64_t label) {
    auto documents = std::make_shared<data::LabelledDocuments>(10, 3);
    documents->add(std::vector<int32_t>{1, 2}, 0);
    documents->add(std::vector<int32_t>{3}, label);
    return Classification({documents, nullptr, nullptr}, {.batch_size = 1});
  };
  const weights::NamedTensors saved = task_of(1).save();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
  EXPECT_NO_THROW(task_of(1).load(find));
  test::expect_error<base::InputError>([&] { task_of(2).load(find); }, {"data position: it belongs to other labels"});
  // Earlier versions did not save them.
  EXPECT_NO_THROW(
      task_of(2).load([&](const std::string& name) { return name == "labels" ? at::Tensor() : find(name); }));
}

TEST(Classification, TypesGoWithTheirTokens) {
  data::LabelledDocuments documents(10, 2, true);
  documents.add(std::vector<int32_t>{1, 2, 3}, 0, std::vector<int32_t>{0, 1, 1});
  documents.add(std::vector<int32_t>{4}, 1, std::vector<int32_t>{1});
  const auto segments = document_segments(documents, {0, 1}, 2, {.max_length = 100});
  ASSERT_EQ(segments.size(), 2U);
  EXPECT_TRUE(at::equal(segments[0].input.token_types, at::tensor({0, 0, 0, 0}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(segments[1].input.token_types, at::tensor({1, 1, 1, 0}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(data::rows(segments[1], 1, 1).input.token_types, at::tensor({1, 0}, at::kLong).view({1, 2})));
}

TEST(Classification, DocumentsOfOneSegmentArePaddedAndCut) {
  const auto documents = documents_of({3, 8, 10});
  const auto batch = document_segments(*documents, {0, 1}, 50, {.max_length = 20});
  ASSERT_EQ(batch.size(), 1U);
  EXPECT_EQ(batch[0].input.tokens.sizes(), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(data::token_targets(batch[0]).sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(
      document_segments(*documents, {0, 1}, 50, {.max_length = 20, .pad_to_max_length = true})[0].input.tokens.size(1),
      20);
  const auto cut = document_segments(*documents, {2}, 50, {.max_length = 4});
  EXPECT_EQ(cut[0].input.tokens.size(1), 4);
  EXPECT_EQ(cut[0].input.tokens[0][3].item<int64_t>(), 6);
  EXPECT_FALSE(cut[0].input.valid.defined());
  // Longer than a segment although padded: the last segments, as without padding.
  EXPECT_EQ(document_segments(*documents, {0, 1}, 4, {.max_length = 20, .pad_to_max_length = true}).size(), 2U);
}

std::unique_ptr<models::Model> encoder(int64_t segment_size, const std::string& memory,
                                       const std::string& attention = R"("softmax")") {
  const base::Node node = base::parse_json(
      fmt::format(R"({{"segment_size": {}, "embedding": {{"vocab_size": 100}}, "memory": [{}],
      "head": {{"type": "classification", "num_classes": 4}},
      "backbone": {{"type": "encoder", "num_layers": 2, "dim": 8, "num_heads": 2, "ffn_dim": 16, "init_std": 0.6, "attention": {},
                    "position": {{"type": "learned", "max_len": 64}}}}}})",
                  segment_size, memory, attention),
      "model");
  return models::build(base::read_options<models::ModelOptions>(node), 3, at::kDouble);
}

/// Logits after the last segment [B,C].
at::Tensor logits(const models::Model& model, const data::LabelledDocuments& documents,
                  const std::vector<int64_t>& rows, const ClassificationOptions& options) {
  const at::NoGradGuard no_grad;
  core::State state = model.initial_state(static_cast<int64_t>(rows.size()));
  at::Tensor found;
  for (const data::Batch& segment :
       document_segments(documents, rows, core::token_input(model.input()).segment_size, options)) {
    state = start_documents(model, state, segment.reset);
    core::StepResult step = model.forward(segment.input, state);
    state = std::move(step.state);
    found = model.logits(step.hidden).select(1, 0);
  }
  return found;
}

// Folders of texts, one a label, are read label by label.
TEST(Classification, SomeDocumentsOfASortedSetHaveEveryLabel) {
  auto sorted = std::make_shared<data::LabelledDocuments>(100, 2);
  for (int32_t i = 0; i < 40; ++i) sorted->add(std::vector<int32_t>{7, 8}, i < 20 ? 0 : 1);
  const Classification task({.train = sorted, .valid = sorted, .test = nullptr},
                            {.eval_batch_size = 3, .eval_samples = 8, .max_length = 9});
  const std::optional<Evaluation> found = task.evaluate(*encoder(4, ""), data::Part::valid);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->predictions, 8);
  // All are alike, so one label is found for all: it is right of half of them, or of none where it is a third one.
  const double accuracy = found->at("accuracy");
  EXPECT_TRUE(accuracy == 0.5 || accuracy == 0.0) << accuracy;
  auto reversed = std::make_shared<data::LabelledDocuments>(100, 2);
  for (int32_t i = 0; i < 40; ++i) reversed->add(std::vector<int32_t>{7, 8}, i < 20 ? 1 : 0);
  const Classification other({.train = reversed, .valid = reversed, .test = nullptr},
                             {.eval_batch_size = 3, .eval_samples = 8, .max_length = 9});
  EXPECT_EQ(other.evaluate(*encoder(4, ""), data::Part::valid)->at("nll"), found->at("nll"));
}

TEST(Classification, ADocumentsLabelDoesNotDependOnItsNeighbours) {
  const auto documents = documents_of({3, 8, 11, 1});
  for (
      const char* memory :
      {"",
       R"({"type": "recurrent_tokens", "layout": "encoder", "num_mem_tokens": 2, "cls_token": 97, "sep_token": 98, "pad_token": 99})",
       R"({"type": "grc", "cache_len": 3, "lifetime": "sequence"})"}) {
    for (const int64_t segment_size : {4, 16}) {
      const auto model = encoder(segment_size, memory);
      for (const bool pad : {false, true}) {
        const ClassificationOptions options{.max_length = 12, .pad_to_max_length = pad};
        const at::Tensor together = logits(*model, *documents, {0, 1, 2, 3}, options);
        for (int64_t b = 0; b < 4; ++b) {
          EXPECT_TRUE(at::allclose(together[b], logits(*model, *documents, {b}, {.max_length = 12})[0], 1e-12, 1e-12))
              << memory << segment_size << b;
        }
      }
    }
  }
}

TEST(Classification, AccuracyIsTheShareOfRightLabelsAfterTheLastSegment) {
  const auto documents = documents_of({3, 8, 11, 1});
  const data::LabelledSets sets{documents, documents, nullptr};
  const Classification task(sets, {.batch_size = 2, .eval_batch_size = 3, .max_length = 12, .ask_every_segment = true});
  const auto model = encoder(
      4,
      R"({"type": "recurrent_tokens", "layout": "encoder", "num_mem_tokens": 2, "cls_token": 97, "sep_token": 98, "pad_token": 99})");
  const auto found = task.evaluate(*model, data::Part::valid);
  const at::Tensor all = logits(*model, *documents, {0, 1, 2, 3}, {.max_length = 12});
  EXPECT_EQ(found->at("accuracy"), all.argmax(-1).eq(at::arange(4)).sum().item<double>() / 4);
  EXPECT_EQ(found->predictions, 4);
  const at::Tensor best = all.argmax(-1);
  const std::vector<int64_t> predictions(best.const_data_ptr<int64_t>(), best.const_data_ptr<int64_t>() + 4);
  const auto scores = metrics::class_scores(predictions, std::vector<int64_t>{0, 1, 2, 3});
  EXPECT_EQ(found->at("macro_f1"), scores.macro_f1);
  EXPECT_EQ(found->at("matthews"), scores.matthews);
  EXPECT_FALSE(task.evaluate(*model, data::Part::test).has_value());
  const auto once = Classification(sets, {.max_length = 12}).evaluate(*model, data::Part::valid);
  const at::Tensor nll = -all.log_softmax(-1).diagonal().mean();
  EXPECT_NEAR(once->at("nll"), nll.item<double>(), 1e-12);
  EXPECT_NE(once->at("nll"), found->at("nll"));
}

TEST(Classification, EveryEpochHoldsEveryDocumentOnceAndGoesOnWhereItWas) {
  const auto documents = documents_of({3, 8, 10, 1, 2, 5});
  Classification one({documents, nullptr, nullptr}, {.batch_size = 2, .shuffle = true, .seed = 4, .max_length = 100}),
      two = one;
  std::set<int64_t> seen;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor targets = data::token_targets(one.next(core::TokenInput{.segment_size = 100})[0]);
    for (int64_t b = 0; b < 2; ++b) seen.insert(targets[b][0].item<int64_t>());
  }
  EXPECT_EQ(seen.size(), 6U);
  EXPECT_EQ(one.epoch(), 1.0);
  const auto saved = one.save();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
  two.load(find);
  EXPECT_TRUE(at::equal(one.next(core::TokenInput{.segment_size = 100})[0].input.tokens,
                        two.next(core::TokenInput{.segment_size = 100})[0].input.tokens));
  Classification other({documents_of({3, 8, 10, 1, 2, 6}), nullptr, nullptr}, {});
  test::expect_error<base::InputError>([&] { other.load(find); }, {"other documents"});
}

}  // namespace
}  // namespace mnemo::tasks
