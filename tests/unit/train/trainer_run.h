#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "tests/support/small_training.h"
#include "tests/support/temporary_folder.h"
#include "train/trainer.h"

namespace mnemo::train {

inline const std::map<std::string, std::vector<base::Node>>& memories() {
  static const std::map<std::string, std::vector<base::Node>> all = {
      {"none", {}},
      {"segment cache", {base::Node::table({{"type", "segment_cache"}, {"mem_len", 12}})}},
      {"rmt, depth 1, and cache",
       {base::Node::table({{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"bptt_depth", 1}}),
        base::Node::table({{"type", "segment_cache"}, {"mem_len", 5}})}},
      {"grc", {base::Node::table({{"type", "grc"}, {"cache_len", 4}, {"gate_bias", true}})}},
      {"compressive",
       {base::Node::table({{"type", "compressive"}, {"mem_len", 5}, {"compressed_len", 3}, {"compression_rate", 2}})}},
  };
  return all;
}

inline TrainOptions small_options() {
  TrainOptions options;
  options.steps = 6;
  options.batch_size = 4;
  options.segments_per_step = 3;
  options.optimiser = base::Node::table({{"type", "adamw"}, {"lr", 0.01}});
  options.schedule = base::Node::table({{"type", "cosine"}, {"warmup_steps", 2}});
  options.log_every = 4;
  options.eval_every = 2;
  options.eval_batch_size = 3;
  options.seed = 5;
  return options;
}

/// A small text, models of it with memory, and helpers for their runs.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    base::write_file_atomic(folder_ / "text.txt", test::counting_text(120));
    corpus_ = test::small_corpus(folder_ / "text.txt");
  }

  struct Run {
    std::unique_ptr<models::Model> model;
    std::unique_ptr<tasks::LanguageModel> task;
    std::unique_ptr<Trainer> trainer;
  };
  Run make(const TrainOptions& options, const std::vector<base::Node>& memory, const std::string& run_folder = {},
           double dropout = 0.0, at::ScalarType dtype = at::kFloat) {
    Run run;
    run.model = test::small_model(corpus_.tokenizer->size(), memory, 8, dropout, dtype);
    run.task = std::make_unique<tasks::LanguageModel>(corpus_, test::task_options(options));
    run.trainer = std::make_unique<Trainer>(*run.model, *run.task, options, run_folder);
    return run;
  }
  /// A corpus of documents separated by blank lines, all used for training.
  void use_documents(const std::string& documents) {
    data::TextOptions text;
    text.train = folder_ / "documents.txt";
    text.document_separator = data::DocumentRule::Kind::blank_line;
    text.valid_fraction = text.test_fraction = 0;
    base::write_file_atomic(text.train, documents);
    corpus_ = data::load_corpus(text);
  }
  static RunHooks quiet(std::function<int()> stop = [] { return 0; }) {
    RunHooks hooks;
    hooks.should_stop = std::move(stop);
    hooks.show_progress = false;
    return hooks;
  }
  /// The files of two checkpoints are equal byte for byte, except those that contain times.
  static void expect_same(const std::string& a, const std::string& b, const std::string& apart_from = {}) {
    const weights::CheckpointReader one(a), two(b);
    ASSERT_EQ(one.info().files.size(), two.info().files.size());
    for (const weights::CheckpointFile& file : one.info().files) {
      if (file.name != "timing.safetensors" && file.name != apart_from) {
        EXPECT_TRUE(one.file(file.name) == two.file(file.name)) << file.name << " differs";
      }
    }
  }

  test::TemporaryFolder folder_;
  data::Corpus corpus_;
};

}  // namespace mnemo::train
