#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "core/backbone.h"
#include "models/text_model.h"
#include "tests/support/configurations.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::test {

/// Tests that run once for each configuration.
class Conformance : public testing::TestWithParam<Configuration> {
 protected:
  const Configuration& config() const { return GetParam(); }
};

inline std::string name_of(const testing::TestParamInfo<Configuration>& info) { return info.param.name; }

/// The configurations of the suite that a law applies to.
inline std::vector<Configuration> configurations_where(const std::function<bool(const Configuration&)>& condition) {
  std::vector<Configuration> chosen;
  for (const Configuration& configuration : configurations()) {
    if (condition(configuration)) chosen.push_back(configuration);
  }
  return chosen;
}

/// A GRC cache with the model's lifetime: in training, its state is a mean over the batch.
inline bool has_model_cache(const Configuration& configuration) {
  return configuration.has("grc") && configuration.memory_option("grc", "lifetime", "").as_string() == "model";
}

/// LSH chunks depend on how many rows, including later ones, fall into each bucket: a segment's outputs are not those
/// of its parts.
inline bool parts_are_the_whole(const Configuration& configuration) { return configuration.attention() != "lsh"; }

/// The arena's hashing masks no rows, not even padding.
inline bool masks_padding(const Configuration& configuration) {
  return configuration.attention() != "lsh" ||
         configuration.options.backbone.stack().attention.table().at("variant").as_string() != "lra";
}

/// configurations() and encoders(): all models that return a row for every token.
inline std::vector<Configuration> decoders_and_encoders() {
  std::vector<Configuration> list = configurations();
  list.insert(list.end(), encoders().begin(), encoders().end());
  return list;
}

/// One segment in several calls; a single call for an encoder, whose segments have no parts.
inline Plan in_parts(const Configuration& configuration, const std::vector<int64_t>& lengths) {
  if (configuration.options.backbone.causal()) return parts(lengths);
  int64_t total = 0;
  for (const int64_t length : lengths) total += length;
  return whole(total);
}

/// Whether a sequence may be divided into any segments: nothing depends on the boundaries, and what is carried is
/// exact. ABC and linear attention carry everything they have read, and a window of one row reads nothing else. A layer
/// context does so while it holds everything unchanged, or everything that same_length can see in evaluation, where the
/// law is checked. An attention says itself whether its state changes at boundaries.
inline bool any_segments(const Configuration& c) {
  const auto model = models::build_as<models::TextModel>(c.options);
  if (!model->memories().sequences().empty() ||
      c.options.backbone.stack().position.type != backbones::PositionOptions::Type::none)
    return false;
  for (int64_t layer = 0; layer < model->backbone().num_layers(); ++layer) {
    if (model->backbone().attention(layer).support().moves_at_ends) return false;
  }
  if (c.attention() == "abc" || c.attention() == "linear" || c.name == "window_one") return true;
  for (const char* memory : {"attention_cache", "compressive"}) {
    if (c.has(memory)) return c.memory_option(memory, "mem_len", 0).as_int() >= 32;
  }
  const base::Node evaluation = c.memory_option("segment_cache", "eval_same_length", {});
  const base::Node same_length = evaluation.is_null() ? c.memory_option("segment_cache", "same_length", false)
                                                      : evaluation;
  return c.has("segment_cache") &&
         (c.memory_option("segment_cache", "mem_len", 0).as_int() >= 32 || same_length.as_bool());
}

inline void expect_near(const at::Tensor& found, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  EXPECT_LE(difference(found, expected), tolerance) << what;
}
inline void expect_near(const Outcome& found, const Outcome& expected, double tolerance, const std::string& what) {
  expect_near(found.hidden, expected.hidden, tolerance, what);
  EXPECT_EQ(state_difference(found.state, expected.state, tolerance), "") << what;
}

}  // namespace mnemo::test
