// Several processes of this machine against one, with the program itself.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "tests/integration/ranks.h"
#include "tests/unit/data/image_files.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using test::content;
using test::Finished;
using test::holds;

class EqualRanks : public Ranks {
 protected:
  /// The largest difference of a tensor, relative to its largest element.
  static double difference(const std::string& a, const std::string& b) {
    const weights::TensorFile one = weights::read_safetensors(a), other = weights::read_safetensors(b);
    EXPECT_EQ(one.tensors.size(), other.tensors.size());
    double worst = 0;
    for (const auto& [name, tensor] : one.tensors) {
      const at::Tensor x = tensor.to(at::kDouble), y = other.at(name, b).to(at::kDouble);
      if (x.numel() == 0) continue;
      worst = std::max(worst, ((x - y).abs().max() / (x.abs().max() + 1e-3)).item<double>());
    }
    return worst;
  }

  /// Trains the recipe on one process and on two: the same weights and evaluations but for rounding.
  void expect_equal_to_one_process(int64_t last, const std::string& name = "",
                                   const std::vector<std::string>& more = {}, double tolerance = 1e-3) const {
    const std::string first = name + "one", second = name + "two";
    const Finished alone = train(first, 1, more);
    ASSERT_EQ(alone.status, 0) << alone.err;
    const Finished two = train(second, 2, more);
    ASSERT_EQ(two.status, 0) << two.err << content(folder_ / (second + "/rank-1.log"));
    const std::string file = "/model.safetensors";
    EXPECT_LT(difference(step(first, last) + file, step(second, last) + file), tolerance) << name;
    const auto one = weights::read_manifest(step(first, last)).metrics,
               other = weights::read_manifest(step(second, last)).metrics;
    EXPECT_GT(one.size(), 1U);
    for (const auto& [name, value] : one) EXPECT_NEAR(value, other.at(name), 1e-3 * std::abs(value) + 1e-9) << name;
  }
};

TEST_F(EqualRanks, TwoAndFourEqualOneProcess) {
  ASSERT_EQ(train("one", 1).status, 0);
  for (const int64_t processes : {2, 4}) {
    const std::string name = std::to_string(processes);
    const Finished done = train(name, processes);
    ASSERT_EQ(done.status, 0) << done.err << content(folder_ / (name + "/rank-1.log"));
    EXPECT_TRUE(holds(done.out, "12 steps")) << done.out;
    for (const char* file : {"model", "optimiser", "state", "average"}) {
      EXPECT_LT(difference(step("one", 12) + "/" + file + ".safetensors", step(name, 12) + "/" + file + ".safetensors"),
                2e-4)
          << file;
    }
    EXPECT_EQ(content(step("one", 12) + "/data.safetensors"), content(step(name, 12) + "/data.safetensors"));
  }
}

TEST_F(EqualRanks, ResumeOnTheSameNumberIsBitwiseAndOnAnotherExactButForRounding) {
  ASSERT_EQ(train("whole", 2).status, 0);
  ASSERT_EQ(train("parts", 2, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("parts", 2, {"--set", "train.steps=12"}).status, 0);
  // Not the trainer's file: the run that ended at step 4 has an evaluation more.
  for (const char* file : {"model", "optimiser", "state", "average"}) {
    const std::string name = std::string("/") + file + ".safetensors";
    EXPECT_EQ(content(step("whole", 8) + name), content(step("parts", 8) + name)) << file;
    EXPECT_EQ(content(step("whole", 12) + name), content(step("parts", 12) + name)) << file;
  }
  ASSERT_EQ(train("mixed", 2, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("mixed", 1, {"--set", "train.steps=8"}).status, 0);
  ASSERT_EQ(resume("mixed", 4, {"--set", "train.steps=12"}).status, 0);
  EXPECT_LT(difference(step("whole", 12) + "/model.safetensors", step("mixed", 12) + "/model.safetensors"), 2e-4);
  EXPECT_EQ(content(step("whole", 12) + "/data.safetensors"), content(step("mixed", 12) + "/data.safetensors"));
}

/// Sums of three ranks depend on their order, and this memory's parameters have no gradient in the first steps.
TEST_F(EqualRanks, ResumeOnThreeIsBitwiseWhereGradientsBeginLater) {
  const std::vector<std::string> more = {
      "--set", R"(model.memory=[{ type = "compressive", mem_len = 16, compressed_len = 16 }])",
      "--set", "train.accumulate=1",
      "--set", "train.batch_size=9",
      "--set", R"(train.optimiser={ type = "sgd", lr = 0.1 })"};
  const auto with = [&](const std::string& steps) {
    std::vector<std::string> words = more;
    words.insert(words.end(), {"--set", "train.steps=" + steps});
    return words;
  };
  ASSERT_EQ(train("whole", 3, with("8")).status, 0);
  ASSERT_EQ(train("parts", 3, with("4")).status, 0);
  ASSERT_EQ(resume("parts", 3, {"--set", "train.steps=8"}).status, 0);
  for (const char* file : {"/model.safetensors", "/state.safetensors"})
    EXPECT_TRUE(content(step("whole", 8) + file) == content(step("parts", 8) + file)) << file;
}

/// Batches of sentences differ in their number of rows and of targets; the encoder has one GRC cache. BLEU of
/// translations that the ranks share.
TEST_F(EqualRanks, UnevenBatchesOfPairs) {
  write_pairs(folder_, 96, R"({ type = "grc", cache_len = 4, attend = "sample", eval_read = "updated" })");
  expect_equal_to_one_process(8);
}

/// Texts of one to six segments: the cache of the model is the mean over the texts that a segment has, of which ranks
/// have more or fewer.
TEST_F(EqualRanks, AClassifierOfTextsOfUnequalLengths) {
  test::write(folder_ / "recipe.toml", R"(
[data]
type = "listops"
max_depth = 2
min_length = 3
max_length = 30
train_samples = 40
valid_samples = 13
[model]
segment_size = 6
memory = [{ type = "grc", cache_len = 4, attend = "sample", eval_read = "updated" }]
head = { type = "classification" }
[model.backbone]
type = "encoder"
num_layers = 2
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
[train]
steps = 8
batch_size = 8
eval_batch_size = 3
shuffle = true
optimiser = { type = "sgd", lr = 0.05 }
threads = 1
save_every = 4
tensorboard = false
)");
  expect_equal_to_one_process(8, "", {}, 2e-5);
}

/// Batches of one or two rows: ranks without a row draw the dropout masks of the others all the same.
TEST_F(EqualRanks, BatchesWithFewerRowsThanRanks) {
  write_pairs(folder_, 12, "");
  expect_equal_to_one_process(8);
}

/// A small ViT on photos, with further lines of [data], [model] and [train] and keys of the backbone.
void write_images(const test::TemporaryFolder& folder, const std::string& data, const std::string& backbone,
                  const std::string& memory, const std::string& train) {
  data::make_class_folders(folder / "photos", 8);
  test::write(folder / "recipe.toml", fmt::format(R"(
[data]
type = "images"
train = "photos"
valid_fraction = 0.25
image_size = [32, 32]
{}
[model]
backbone = {{ type = "vit", image_size = [32, 32], patch_size = 8, dim = 16, num_layers = 2, num_heads = 2{} }}
head = {{ type = "classification" }}
memory = [{}]
[train]
steps = 8
batch_size = 8
eval_batch_size = 3
optimiser = {{ type = "sgd", lr = 0.05 }}  # Adam makes whole steps of the rounding of biases without a gradient
shuffle = true
threads = 1
save_every = 4
tensorboard = false
{}
)",
                                                  data, backbone, memory, train));
}

/// Augmented images, mixed by pairs, with dropped paths and a moving average.
TEST_F(EqualRanks, ImagesWithAugmentation) {
  write_images(folder_, "augment = { scale = [0.5, 1.0], mixup = 0.5, label_smoothing = 0.1 }", ", dropout = 0.1",
               R"({ type = "grc", cache_ratio = 0.5, attend = "sample", eval_read = "updated" })",
               "ema_decay = 0.9\neval_every = 4");
  expect_equal_to_one_process(8);
}

/// A cache for each place of the batch stays with the rank that has the place.
TEST_F(EqualRanks, LanesOfImages) {
  write_images(folder_, "", "", R"({ type = "attention_cache", lanes = "batch", eval_lanes = "empty" })",
               "accumulate = 2\nkeep_last = 0");
  expect_equal_to_one_process(8);
  const weights::TensorFile state = weights::read_safetensors(step("one", 8) + "/state.safetensors");
  int64_t lanes = 0;
  for (const auto& [name, tensor] : state.tensors) {
    if (!name.ends_with("attention_cache.rows")) continue;
    EXPECT_EQ(tensor.sizes(), at::IntArrayRef({4, 17, 16})) << name;
    ++lanes;
  }
  EXPECT_EQ(lanes, 4) << "two layers of two parts of the batch";
  // A resumed training reads them bit for bit.
  ASSERT_EQ(train("parts", 1, {"--set", "train.steps=4"}).status, 0);
  ASSERT_EQ(resume("parts", 1, {"--set", "train.steps=8"}).status, 0);
  EXPECT_EQ(content(step("one", 8) + "/model.safetensors"), content(step("parts", 8) + "/model.safetensors"));
  // One cache for the model has the last image of the whole batch.
  expect_equal_to_one_process(8, "last", {"--set", "model.memory=[{type=\"attention_cache\"}]"});
  ASSERT_EQ(
      train("whole", 1, {"--set", "model.memory=[{type=\"attention_cache\"}]", "--set", "train.accumulate=1"}).status,
      0);
  EXPECT_LT(difference(step("lastone", 8) + "/model.safetensors", step("whole", 8) + "/model.safetensors"), 1e-3);
  // A memory that goes from batch to batch is no matter of several processes.
  const Finished refused = train("moving", 2, {"--set", "model.memory[0].eval_lanes=\"moving\""});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "several processes each measure a share of the batches")) << refused.err;
}

/// Random slots and projections are drawn for the whole batch, also where a document begins in the streams of one rank.
TEST_F(EqualRanks, RandomDrawsAreThoseOfOneProcess) {
  std::string text;
  for (int64_t i = 0; i < 600; ++i)
    text += std::to_string(i * 7919 % 1000) + (i * i % 13 == 1 ? " pears\n\n" : " figs\n");
  test::write(folder_ / "text.txt", text);
  const std::map<std::string, std::string> attentions = {
      {"segment", "{type=\"abc\",num_slots=4,control={type=\"random\",redraw=\"segment\"}}"},
      {"sequence", "{type=\"abc\",num_slots=4,control={type=\"random\",redraw=\"sequence\"}}"},
      {"projections", "{type=\"linear\",feature_map=\"rfa\",num_features=4,redraw=\"sequence\"}"}};
  for (const auto& [name, attention] : attentions)
    expect_equal_to_one_process(4, name,
                                {"--set", "model.backbone.attention=" + attention, "--set", "model.memory=[]", "--set",
                                 "data.document_separator=\"blank_line\"", "--set", "train.steps=4"});
}

/// Parts of a text, and samples of a task: counts and sums are those of one process.
TEST_F(EqualRanks, EvaluationIsThatOfOneProcess) {
  ASSERT_EQ(train("run", 1).status, 0);
  const std::vector<std::string> words = {"eval", folder_ / "run/model", "--batch", "6", "--json", "--threads", "1"};
  const base::Node alone = base::parse_json(run(words).out, "alone");
  for (const int64_t processes : {2, 4}) {
    const Finished done = run(with_processes(words, processes, {}));
    ASSERT_EQ(done.status, 0) << done.err;
    const base::Node shared = base::parse_json(done.out, "shared");
    EXPECT_EQ(alone.at("predictions").as_int(), shared.at("predictions").as_int());
    EXPECT_NEAR(alone.at("nll").as_double(), shared.at("nll").as_double(), 1e-6);
  }
  const Finished refused = run({"eval", folder_ / "run/model", "--processes", "2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "--batch")) << refused.err;
}

}  // namespace
}  // namespace mnemo
