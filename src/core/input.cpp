#include "core/input.h"

#include "base/error.h"

namespace mnemo::core {

const TokenInput& token_input(const ModelInput& input) {
  const auto* tokens = std::get_if<TokenInput>(&input);
  base::require(tokens != nullptr, "expected {}, found {}", model_of(InputKind::tokens), model_of(kind_of(input)));
  return *tokens;
}

const PairInput& pair_input(const ModelInput& input) {
  const auto* pairs = std::get_if<PairInput>(&input);
  base::require(pairs != nullptr, "expected {}, found {}", model_of(InputKind::pairs), model_of(kind_of(input)));
  return *pairs;
}

}  // namespace mnemo::core
