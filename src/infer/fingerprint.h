#pragma once

#include <functional>
#include <memory>
#include <string>

namespace mnemo::core {
class Model;
}

namespace mnemo::infer {

/// A text that identifies a model or a vocabulary. It is computed when it is first asked for, once for all copies;
/// several threads may ask.
class Fingerprint {
 public:
  explicit Fingerprint(std::function<std::string()> compute);
  /// That of a model, as fingerprint(model).
  explicit Fingerprint(std::shared_ptr<const core::Model> model);
  const std::string& text() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// SHA-256 of the names, shapes, types and values of a model's parameters and of all its options: the same for the same
/// model, regardless of where it is loaded.
std::string fingerprint(const core::Model& model);

}  // namespace mnemo::infer
