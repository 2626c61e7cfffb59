#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::bundle {

struct ConvertOptions {
  std::string model = {};  ///< a model folder, a run's folder, or a folder of another library
  std::string to = {};   ///< "t2r", "average", "mnemo", or the name of a format of another library (weights/foreign.h)
  std::string out = {};  ///< the new model's folder
  std::optional<int64_t> features = {};        ///< of t2r: features of a head; unset: 32
  std::optional<int64_t> last = {};            ///< of average: number of the latest checkpoints; unset: 5
  int64_t seed = 0;                            ///< of fresh parameters
  std::optional<std::string> checkpoint = {};  ///< of a run: "latest", "best" or a step
  /// Without `to`: what is added to a model of texts. Each "TYPE,KEY=VALUE,..", as tables of a recipe's
  /// [[model.memory]] and [model.backbone.attention].
  std::vector<std::string> memory = {};
  std::optional<std::string> attention = {};
  std::optional<std::string> lora = {};  ///< a file of LoRA to merge: weights/lora.h
  std::optional<int64_t> segment = {};   ///< tokens per segment; unset: as many as fit beside the memory rows
  bool adds() const { return !memory.empty() || attention || segment || lora; }
};

struct Converted {
  int64_t parameters = 0;
  int64_t fresh = 0;          ///< of these, not taken from the model
  double uniform_loss = 0.0;  ///< log V, for comparison with the next
  double first_loss = 0.0;    ///< of a model with memories or another attention: -log p of random tokens, per token
};

/// Makes a model of another kind from a trained one, or writes it under the names of another library, or of Mnemo.
/// Throws InputError for a model that does not fit, and for an option that the other format cannot express.
Converted convert(const ConvertOptions& options);

/// The values of `to`.
std::vector<std::string> conversion_names();
/// The values of `to`, each with a short description.
std::string conversions_text();

}  // namespace mnemo::bundle
