#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"

namespace mnemo::test {

/// A small model of the conformance suite. Every model has 2 layers, width 8, 2 heads, and `kVocab` tokens.
struct Configuration {
  std::string name;  ///< letters, digits and underlines
  models::ModelOptions options;

  bool has(const std::string& memory) const;
  /// Whether it has a memory on the layer-context seam: rows of earlier segments to the left of every layer's rows.
  bool has_layer_context() const;
  /// An option of its memory of that type, or `otherwise` if it has none.
  base::Node memory_option(const std::string& memory, const std::string& key, const base::Node& otherwise) const;
  std::string attention() const;
};
std::ostream& operator<<(std::ostream& stream, const Configuration& configuration);

inline constexpr int64_t kVocab = 13;

/// The options of a small model, with assignments as for `--set` ("memory[0].type=grc").
base::Node options_of(const std::vector<std::string>& assignments);
Configuration configuration(const std::string& name, const std::vector<std::string>& assignments);

/// From the registry: every attention with every set of memories that a model accepts, at small sizes, and the sets
/// that it rejects; plus variants of options that have rules of their own.
const std::vector<Configuration>& combinations();
const std::vector<std::vector<std::string>>& refused_combinations();  ///< attention first, then the memories
const std::vector<Configuration>& variants();
/// combinations() and variants().
const std::vector<Configuration>& configurations();
/// Encoders whose head predicts tokens: every attention that can be bidirectional with every memory that an encoder
/// accepts, and variants.
const std::vector<Configuration>& encoders();
/// Encoders that predict one class per segment.
const std::vector<Configuration>& classifiers();

/// Every memory of the registry that a model of texts can have, at small sizes.
std::vector<base::Node> small_memories();

/// With every memory that selects the best of its rows selecting all of them, under a name of its own: a difference
/// step then changes no selection. Others as they are.
Configuration selecting_all(Configuration configuration);

/// The model with all parameters redrawn from N(0, 0.3), norms around 1, so that nothing is zero or small initially.
std::unique_ptr<models::Model> make_model(const models::ModelOptions& options, at::ScalarType dtype = at::kDouble,
                                          uint64_t seed = 1);
/// The state after two training segments of random tokens; memory that belongs to the model is updated too.
core::State warm_state(models::Model& model, int64_t batch, uint64_t seed = 2);

}  // namespace mnemo::test
