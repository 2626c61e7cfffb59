#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/node.h"
#include "infer/generate_options.h"
#include "serve/api_error.h"

namespace mnemo::serve {

struct RequestLimits {
  int64_t max_tokens = 4096;  ///< that a request may ask for
  size_t body_bytes = 8 << 20;
  bool lenient = false;  ///< ignore parameters that are not honoured, instead of refusing them
};

/// The body of POST /v1/completions, as OpenAI's API has it. Ours beside it: top_k, min_p, repetition_penalty; with
/// `session` also if_position and keep_partial.
struct CompletionRequest {
  using Prompt = std::variant<std::string, std::vector<int64_t>>;

  std::string model;
  std::vector<Prompt> prompts;  ///< at least one
  int64_t max_tokens = 16;
  int64_t n = 1;          ///< texts for each prompt, with the seeds seed, seed + 1, ...
  int64_t logprobs = -1;  ///< alternatives listed with each token; -1: no log probabilities
  bool echo = false, stream = false, include_usage = false;
  std::vector<std::string> stop;
  base::Node sampling = base::Node::table();  ///< what the request says of GenerateOptions::visit
  std::string session;
  std::optional<int64_t> if_position;
  bool keep_partial = false;

  /// The sampling of the request; what it does not say is as in `otherwise`. Options without effect at temperature 0
  /// are left out.
  infer::GenerateOptions options(const infer::GenerateOptions& otherwise) const;
};

/// The JSON object of a body. Throws ApiError for one that is too deep, too long or no object.
base::Node read_body(std::string_view body, const RequestLimits& limits);

/// Throws ApiError 400 naming the parameter: unknown, of another type, or out of range.
CompletionRequest read_completion(std::string_view body, const RequestLimits& limits);

/// The keys of GenerateOptions::visit in an object, each checked; others are left alone. Throws ApiError.
base::Node read_sampling(const base::Node& body);

}  // namespace mnemo::serve
