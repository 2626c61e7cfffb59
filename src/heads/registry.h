#pragma once

#include <functional>
#include <memory>

#include "base/option_poly.h"
#include "core/model_outline.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"

namespace mnemo::core {
class Head;
}

namespace mnemo::heads {

struct DetectorBuild;

/// The position of a head in a model. D `dim`.
struct HeadBuild {
  layers::Scope scope;  ///< "head"
  int64_t dim = 0;
  int64_t vocab_size = 0;  ///< 0: an image model
  double init_std = 0.02;
  at::Tensor table = {};                                ///< [V,D] of the embedding, if it has one table for all tokens
  const layers::AdaptiveEmbedding* adaptive = nullptr;  ///< the embedding, if it is adaptive
  const DetectorBuild* detector = nullptr;              ///< for a head that detects()
};

/// One type of `head`.
struct Entry {
  std::function<std::unique_ptr<core::Head>(const base::TypedOptions& options, const HeadBuild&)> make;
  /// Throws InputError if the head does not fit the model; `where` is the model's table.
  std::function<void(const base::TypedOptions& options, const core::ModelOutline&, const base::Where& where)> check;
  /// Number of classes of a head that predicts one for a whole segment or image, 0 if the data decides. Empty for other
  /// heads.
  std::function<int64_t(const base::TypedOptions& options)> num_classes;
  /// Whether its output matrix is the embedding.
  std::function<bool(const base::TypedOptions& options)> is_tied = [](const base::TypedOptions&) { return true; };
  /// Whether it reads a row before the tokens; the model adds one if no memory provides it.
  std::function<bool(const base::TypedOptions& options)> reads_first_row;
  /// Whether it finds objects in images, and whether with masks.
  bool detects = false, gives_masks = false;
};

/// Registers every head.
void add_heads(base::OptionTypes& types, base::Registry<Entry>& entries);

}  // namespace mnemo::heads
