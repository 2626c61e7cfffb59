#include "infer/generate_options.h"

#include "base/error.h"

namespace mnemo::infer {

void GenerateOptions::validate(const base::Where& where) const {
  where.require(temperature > 0.0 || top_k == 0, "top_k",
                "temperature 0 always takes the most likely token, so top_k = {} has no effect; set a temperature "
                "above 0 or remove top_k",
                top_k);
  where.require(temperature > 0.0 || top_p == 1.0, "top_p",
                "temperature 0 always takes the most likely token, so top_p = {} has no effect; set a temperature "
                "above 0 or remove top_p",
                top_p);
  where.require(temperature > 0.0 || min_p == 0.0, "min_p",
                "temperature 0 always takes the most likely token, so min_p = {} has no effect; set a temperature "
                "above 0 or remove min_p",
                min_p);
}

void GenerateOptions::check_length() const {
  base::require(max_tokens >= 1 && max_tokens <= kMostTokens, "options: 'max_tokens': expected 1 to {}, found {}",
                kMostTokens, max_tokens);
}

}  // namespace mnemo::infer
