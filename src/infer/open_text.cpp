#include "infer/open_text.h"

#include <fmt/format.h>

#include "base/error.h"
#include "infer/generation_settings.h"

namespace mnemo::infer {
namespace {

/// The text that goes on from a session made of the bundle's engine or, where it has none, of its model.
template <class Make>
TextSession text_from(const bundle::Bundle& bundle, const std::string& precision, const Make& make) {
  const std::shared_ptr<models::Model> model = bundle.text_model("generate");
  base::require(bundle.tokenizer != nullptr,
                "{}: expected a model of texts, found one without a tokenizer; a converted model takes the tokenizer's "
                "files (tokenizer.json and so on) from the folder that it was made from",
                bundle.folder);
  const std::shared_ptr<const Engine> engine = make_engine(
      model, precision.empty() ? std::nullopt : std::optional(precision), "generate");
  Session session = engine ? make(engine) : make(std::shared_ptr<const core::Model>(model));
  session.set_reset_segments(bundle.conventions.resets_segments());
  return {std::move(session), bundle.tokenizer, end_tokens(bundle)};
}

}  // namespace

std::shared_ptr<const Engine> make_engine(std::shared_ptr<const models::Model> model,
                                          const std::optional<std::string>& precision, std::string_view who) {
  EngineOptions options;
  const std::string where = fmt::format("{}: --precision", who);
  if (precision) options.precision = ops::precision_of(*precision, where);
  const std::string reason = unsupported_reason(*model);
  if (!reason.empty()) {
    base::require(!precision, "{} {}: the decoding engine cannot run this model: {}; leave the option out", where,
                  precision.value_or(""), reason);
    return nullptr;
  }
  return std::make_shared<const Engine>(std::move(model), options);
}

TextSession open_text(const bundle::Bundle& bundle, const GenerateOptions& options) {
  return text_from(bundle, options.precision, [&](const auto& decodes) { return Session(decodes, options); });
}

TextSession resume_text(const bundle::Bundle& bundle, const std::string& session_file, const std::string& precision) {
  return text_from(bundle, precision, [&](const auto& decodes) { return Session::load(session_file, decodes); });
}

}  // namespace mnemo::infer
