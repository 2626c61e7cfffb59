#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/stop.h"

namespace mnemo::infer {

/// How a text is generated. First the logits x [V] of tokens that have occurred are penalised:
///   x = x / repetition_penalty if x > 0, else x * repetition_penalty    of a token that was read or written (Keskar et
///                                                                       al. 2019, CTRL)
///   x = x - frequency_penalty * count - presence_penalty                of a token written count > 0 times (OpenAI)
/// Then a token is sampled from p = softmax(x / temperature), restricted to the top_k most likely tokens, to the fewest
/// of these that hold top_p of their probability, and to tokens with at least min_p times the highest probability.
struct GenerateOptions {
  static constexpr int64_t kMostTokens = 1 << 24;
  int64_t max_tokens = 256;            ///< of a text
  double temperature = 0.8;            ///< 0: always the most likely token
  int64_t top_k = 0;                   ///< 0: all
  double top_p = 1.0;                  ///< 1: all
  double min_p = 0.0;                  ///< 0: all
  double repetition_penalty = 1.0;     ///< 1: none
  double frequency_penalty = 0.0;      ///< 0: none
  double presence_penalty = 0.0;       ///< 0: none
  std::vector<std::string> stop = {};  ///< texts that end the text where they occur; not part of it
  bool past_end = false;               ///< write on past the tokens that end a published model's texts
  bool sample_unknown = false;         ///< whether the text may contain <unk>
  int64_t seed = 0;                    ///< random seed; the same seed gives the same text
  /// Weights of the decoding engine, a name of ops::Precision; empty: float32 if the engine supports the model, else
  /// the model itself.
  std::string precision = {};
  /// Keys and values of the decoding engine: "int8", or "auto" or empty: float32 beside float32 weights, else bf16.
  std::string kv_precision = {};
  /// Asked before each token and every 64 tokens that are read; then base::Stopped is thrown, and the session is as it
  /// was before the call, or after the last token.
  base::ShouldStop should_stop = {};

  /// How a token is sampled: the keys of [generate.sampling], which a session keeps.
  template <class V>
  void visit(V&& v) {
    v("temperature", temperature, "temperature that divides the logits; 0: always take the most likely token (greedy)",
      base::range(0.0, 1e6));
    v("top_k", top_k, "sample from the k most likely tokens; 0: all", base::range(0, 1 << 24));
    v("top_p", top_p, "nucleus sampling: sample from the smallest set of tokens with this total probability; 1: all",
      base::check("more than 0 and at most 1",
                  [](const base::Node& value) { return value.as_double() > 0.0 && value.as_double() <= 1.0; }));
    v("min_p", min_p, "sample only from tokens with at least this share of the most likely token's probability; 0: all",
      base::range(0.0, 1.0));
    v("repetition_penalty", repetition_penalty,
      "divides positive logits of tokens read or written before, and multiplies negative ones; 1: none",
      base::range(0.01, 100.0));
    v("frequency_penalty", frequency_penalty,
      "subtracted from a token's logit for each time that it was written; negative encourages repetition; 0: none",
      base::range(-2.0, 2.0));
    v("presence_penalty", presence_penalty, "subtracted once from the logit of a token that was written; 0: none",
      base::range(-2.0, 2.0));
    v("seed", seed, "random seed; the same seed gives the same text", base::at_least(0));
    v("sample_unknown", sample_unknown, "whether a text may contain the token <unk>");
  }
  void validate(const base::Where& where) const;

  /// When a text ends: keys of [generate].
  template <class V>
  void visit_text(V&& v) {
    v("tokens", max_tokens, "number of tokens to generate", base::range(1, kMostTokens));
    v("stop", stop, "stop texts: generation ends where one occurs; they are not printed", base::not_empty());
  }
  /// Throws InputError for a max_tokens out of range.
  void check_length() const;

  /// Whether earlier tokens matter.
  bool penalises() const { return repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0; }

  /// Always the most likely token.
  static GenerateOptions greedy() { return {.temperature = 0.0}; }
};

}  // namespace mnemo::infer
