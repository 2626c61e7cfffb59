#pragma once

#include <memory>

#include "data/text/token_store.h"
#include "infer/engine.h"
#include "metrics/likelihood.h"

namespace mnemo::infer {

/// The likelihood of a text by a decoding engine, in one pass with the state carried along and begun anew at documents:
/// what fewer bits cost; with reset_segments begun anew at every segment. Segments are as long as the model's.
/// Throws InputError if the text has tokens that the model does not know.
metrics::Likelihood evaluate_text(const Engine& engine, std::shared_ptr<const data::TokenStore> text,
                                  bool reset_segments = false);

}  // namespace mnemo::infer
