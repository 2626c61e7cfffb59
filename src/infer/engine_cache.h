#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "infer/engine.h"

namespace mnemo::infer {

/// Keeps the engine that a model was last packed as, until another precision is asked for or the weights have changed.
/// Fused optimizers and numpy write without a trace, so the weights' bytes are compared by a sum. Several threads may
/// ask at once.
class EngineCache {
 public:
  /// As make_engine().
  std::shared_ptr<const Engine> get(const std::shared_ptr<const models::Model>& model,
                                    const std::optional<std::string>& precision, std::string_view who,
                                    const std::string& kv_precision = {});

 private:
  /// Shows that weights are no longer what they were.
  struct Weights {
    std::vector<const void*> places;
    uint64_t sum = 0;                   ///< of their bytes
    std::vector<at::Tensor> per_model;  ///< fields of a state that belong to the model, such as a GRC cache
    bool equals(const Weights& other) const;
  };
  static Weights weights_of(const models::Model& model);

  std::mutex mutex_;
  std::shared_ptr<const Engine> engine_;
  std::optional<std::string> precision_;
  std::string kv_precision_;
  Weights weights_;
};

}  // namespace mnemo::infer
