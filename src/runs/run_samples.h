#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.h"

namespace mnemo::runs {

/// A text that a model has written at a step of its training.
struct RunSample {
  int64_t step = 0;
  std::string prompt, text;
};

/// The samples of a training (generate.sample_every), kept in samples.jsonl of its folder: one JSON object per line,
///   {"step": 200, "prompt": "...", "sample": "..."}
/// Sampling has random numbers of its own, so a training with samples equals one without.
class RunSamples {
 public:
  static constexpr const char* kFile = "samples.jsonl";

  /// Continues after `step`: later samples and an incomplete last line are removed. Without generate.sample_every it
  /// does nothing but read. Throws InputError if the recipe asks for samples and its task is no text.
  RunSamples(const experiment::Experiment& experiment, const std::string& folder, int64_t step);

  int64_t every() const { return every_; }
  const std::vector<RunSample>& all() const { return samples_; }
  /// Writes a text with the model as it is now. Null, after a warning, if the model refuses the prompt.
  const RunSample* take(int64_t step);

 private:
  const experiment::Experiment& experiment_;
  std::string path_;
  int64_t every_ = 0;
  std::vector<RunSample> samples_;
};

/// Throws InputError if the recipe asks for samples and its task is no text.
void require_samples_fit(const recipes::Recipe& recipe);

}  // namespace mnemo::runs
