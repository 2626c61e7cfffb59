#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace mnemo::test {

/// A small model of the conformance suite. Every model has 2 layers, 8 wide, 2 heads, and `kVocab` tokens.
struct Configuration {
  std::string name;  ///< letters, digits and underlines
  models::ModelOptions options;

  bool has(const std::string& memory) const;
  /// A memory on the layer-context seam: rows of earlier segments on the left of every layer.
  bool has_layer_context() const;
  /// An option of one of its memories, or `otherwise` where it has none of that type.
  base::Node memory_option(const std::string& memory, const std::string& key, const base::Node& otherwise) const;
  std::string attention() const;
};
std::ostream& operator<<(std::ostream& stream, const Configuration& configuration);

inline constexpr int64_t kVocab = 13;

/// The options of a small model, with assignments as `--set` takes them ("memory[0].type=grc").
base::Node options_of(const std::vector<std::string>& assignments);
Configuration configuration(const std::string& name, const std::vector<std::string>& assignments);

/// What the registry gives: every attention with every set of memories that a model accepts, at small sizes, and the
/// sets it refuses; and the variants of options that have a rule of their own.
const std::vector<Configuration>& combinations();
const std::vector<std::vector<std::string>>& refused_combinations();  ///< attention first, then the memories
const std::vector<Configuration>& variants();
/// combinations() and variants().
const std::vector<Configuration>& configurations();
/// Encoders whose head predicts tokens: every attention that may look both ways with every memory that an encoder
/// takes, and variants.
const std::vector<Configuration>& encoders();
/// Encoders that give a segment one class.
const std::vector<Configuration>& classifiers();

/// The model with all parameters drawn anew from N(0, 0.3), norms around 1, so that nothing is zero or small by start.
std::unique_ptr<models::Model> make_model(const models::ModelOptions& options, at::ScalarType dtype = at::kDouble,
                                          uint64_t seed = 1);
/// The state after two training segments of random tokens; the model's own memory has moved with it.
core::State warm_state(models::Model& model, int64_t batch, uint64_t seed = 2);

}  // namespace mnemo::test
