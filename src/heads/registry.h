#pragma once

#include <functional>
#include <memory>

#include "base/option_poly.h"
#include "core/head.h"
#include "core/model_outline.h"
#include "layers/adaptive_embedding.h"
#include "layers/parts.h"

namespace mnemo::heads {

/// Where a head stands in a model. D `dim`.
struct HeadBuild {
  layers::Scope scope;  ///< "head"
  int64_t dim = 0;
  int64_t vocab_size = 0;  ///< 0: a model of images
  double init_std = 0.02;
  at::Tensor table = {};  ///< [V,D] of the embedding, where it has one table for all tokens
  const layers::AdaptiveEmbedding* adaptive = nullptr;  ///< the embedding, where it is adaptive
};

/// One type of `head`.
struct Entry {
  std::function<std::unique_ptr<core::Head>(const base::Node& options, const HeadBuild&)> make;
  /// Throws InputError where the head cannot stand in the model; `where` is the model's table.
  std::function<void(const base::Node& options, const core::ModelOutline&, const base::Where& where)> check;
  /// Whether it gives a whole segment, or an image, one of num_classes classes.
  bool classifies = false;
  /// Whether it reads a row in front of the tokens, which the model adds where no memory brings one.
  std::function<bool(const base::Node& options)> reads_first_row;
};

/// Every head, filled by explicit lines.
void add_heads(base::OptionTypes& types, base::Registry<Entry>& entries);

}  // namespace mnemo::heads
