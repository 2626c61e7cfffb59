#pragma once

#include <memory>

#include "base/stop.h"
#include "data/text/token_store.h"
#include "infer/engine.h"
#include "metrics/likelihood.h"

namespace mnemo::infer {

/// The likelihood of a text computed by a decoding engine, in one pass. The state is carried along and reset at
/// documents, or, with reset_segments, at every segment. Segments have the model's size. This measures what lower
/// precision costs. context: of segments that are reset, the first tokens, which are read again and not scored.
/// should_stop: asked every 64 tokens. Throws InputError if the text has tokens outside the model's vocabulary, and
/// base::Stopped.
metrics::Likelihood evaluate_text(const Engine& engine, std::shared_ptr<const data::TokenStore> text,
                                  bool reset_segments = false, int64_t context = 0,
                                  const base::ShouldStop& should_stop = {});

}  // namespace mnemo::infer
