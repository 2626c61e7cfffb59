#include "infer/open_text.h"

#include <fmt/format.h>

#include <mutex>

#include "base/error.h"
#include "base/printable.h"
#include "core/mapped_tensor.h"
#include "infer/generation_settings.h"
#include "models/text_model.h"

namespace mnemo::infer {

std::shared_ptr<const Engine> make_engine(std::shared_ptr<const models::Model> model,
                                          const std::optional<std::string>& precision, std::string_view who,
                                          const std::string& kv_precision) {
  EngineOptions options;
  const std::string where = fmt::format("{}: --precision", who);
  if (precision) options.precision = ops::precision_of(*precision, where);
  options.int8_keys = kv_precision == "int8";
  base::require(options.int8_keys || kv_precision.empty() || kv_precision == "auto",
                "{}: --kv-precision: expected auto or int8, found '{}'", who, base::printable(kv_precision, 40));
  if (options.int8_keys) {
    const std::string reason = unsupported_reason(*model, options);
    base::require(reason.empty(),
                  "{}: --kv-precision int8: the decoding engine cannot run this model so: {}; leave the option out",
                  who, reason);
  }
  const std::string reason = unsupported_reason(*model);
  if (!reason.empty()) {
    base::require(!precision, "{} {}: the decoding engine cannot run this model: {}; leave the option out", where,
                  precision.value_or(""), reason);
    return nullptr;
  }
  return std::make_shared<const Engine>(std::move(model), options);
}

TextSession open_text(const bundle::Bundle& bundle, const GenerateOptions& options, EngineCache* engines) {
  const std::shared_ptr<models::TextModel> model = bundle.text("generate");
  const int64_t words = bundle.words("generate").size(), tokens = model->vocab_size();
  base::require(words <= tokens,
                "generate: {}: expected a tokenizer of at most the model's {} tokens, found {}; take the one that the "
                "model was trained with",
                bundle.folder, tokens, words);
  const auto precision = options.precision.empty() ? std::nullopt : std::optional(options.precision);
  const std::shared_ptr<const Engine> engine = engines != nullptr
                                                   ? engines->get(model, precision, "generate", options.kv_precision)
                                                   : make_engine(model, precision, "generate", options.kv_precision);
  if (!engine) {
    // The model reads its weights for every token. Several threads may open a text at once.
    static std::mutex taking;
    const std::lock_guard lock(taking);
    for (const layers::Parameter& parameter : model->parameters().all()) {
      at::Tensor handle = parameter.tensor;
      if (core::is_mapped(handle)) handle.set_data(core::owned(handle));
    }
  }
  Session session = engine ? Session(engine, options) : Session(model, options);
  session.set_reset_segments(bundle.conventions.resets_segments());
  return {std::move(session), bundle.tokenizer, end_tokens(bundle)};
}

TextSession resume_text(const bundle::Bundle& bundle, const std::string& session_file, const GenerateOptions& options,
                        EngineCache* engines) {
  const GenerateOptions precisions{
      .precision = options.precision, .kv_precision = options.kv_precision, .should_stop = options.should_stop};
  return open_text(bundle, precisions, engines).load(session_file);
}

}  // namespace mnemo::infer
