#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>

#include "base/node.h"
#include "data/text/corpus.h"
#include "models/model.h"
#include "tasks/algorithmic.h"
#include "tasks/language_model.h"
#include "train/trainer.h"

namespace mnemo::test {

/// A small character corpus written to `path`: lines that count, so that there is something to learn.
inline data::Corpus small_corpus(const std::string& path) {
  data::TextOptions options;
  options.train = path;
  options.valid_fraction = 0.2;
  options.test_fraction = 0.0;
  return data::load_corpus(options);
}

inline std::string counting_text(int64_t lines) {
  std::string text;
  for (int64_t i = 0; i < lines; ++i) text += std::to_string(i * 7919 % 1000) + (i % 3 == 0 ? " apples\n" : " pears\n");
  return text;
}

/// A one-layer decoder with the given memories, each as a table, and its usual attention unless another is given.
inline std::unique_ptr<models::Model> small_model(int64_t vocabulary, std::vector<base::Node> memory,
                                                  int64_t segment_size = 8, double dropout = 0.0,
                                                  at::ScalarType dtype = at::kFloat,
                                                  const std::optional<base::Node>& attention = std::nullopt) {
  models::ModelOptions options;
  base::Node node = base::Node::table({{"segment_size", segment_size}});
  node.set("embedding", base::Node::table({{"vocab_size", vocabulary}}));
  base::Node backbone = base::Node::table({{"num_layers", 1}, {"dim", 16}, {"num_heads", 2}, {"ffn_dim", 32}});
  backbone.set("dropout", dropout);
  if (attention) backbone.set("attention", *attention);
  node.set("backbone", backbone);
  node.set("memory", base::Node::array(std::move(memory)));
  base::read_options(node, options);
  return models::build(options, 11, dtype);
}

inline tasks::LanguageModelOptions task_options(const train::TrainOptions& options) {
  return {.batch_size = options.batch_size,
          .segments_per_step = options.segments_per_step,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .eval_batch_size = options.eval_batch_size,
          .replay = options.replay};
}

}  // namespace mnemo::test
