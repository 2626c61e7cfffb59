#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bundle/bundle.h"
#include "infer/engine.h"
#include "infer/text_session.h"

namespace mnemo::infer {

/// The model packed for decoding; null where the engine cannot run it and no precision was asked for. Throws InputError
/// "WHO: --precision ..." where one was.
std::shared_ptr<const Engine> make_engine(std::shared_ptr<const models::Model> model,
                                          const std::optional<std::string>& precision, std::string_view who);

/// How a text begins.
struct OpenTextOptions {
  SamplingOptions sampling = {};
  std::optional<std::string> precision = {};  ///< of the engine's weights: "float32", "bf16" or "int8"; unset: float32
                                              ///< where the engine can run the model, else the model itself
  std::optional<std::string> session = {};    ///< file that Session::save wrote: the text goes on from there
};

/// A text that the bundle's model writes, in the fastest form that can run it and with the conventions it was trained
/// with: memory starts again at every segment where data.reset said so. Throws InputError for a model that writes no
/// text, and for a session of another model.
TextSession open_text(const bundle::Bundle& bundle, const OpenTextOptions& options = {});

}  // namespace mnemo::infer
