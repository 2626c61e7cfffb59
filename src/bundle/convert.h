#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::bundle {

struct ConvertOptions {
  std::string model;  ///< a model folder, a run's folder, or a folder of another library
  std::string to;     ///< "t2r", "average", "mnemo", or the name of a format of another library (weights/foreign.h)
  std::string out;    ///< the new model's folder
  std::optional<int64_t> features = {};        ///< of t2r: features of a head; unset: 32
  std::optional<int64_t> last = {};            ///< of average: number of the latest checkpoints; unset: 5
  int64_t seed = 0;                            ///< of t2r: of the fresh feature maps
  std::optional<std::string> checkpoint = {};  ///< of a run: "latest", "best" or a step
};

struct Converted {
  int64_t parameters = 0;
  int64_t fresh = 0;  ///< of these, not taken from the model
};

/// Makes a model of another kind from a trained one, or writes it under the names of another library, or of Mnemo.
/// Throws InputError for a model that does not fit, and for an option that the other format cannot express.
Converted convert(const ConvertOptions& options);

/// What `to` may be.
std::vector<std::string> conversion_names();
/// The same, each with a few words.
std::string conversions_text();

}  // namespace mnemo::bundle
