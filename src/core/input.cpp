#include "core/input.h"

#include "base/error.h"

namespace mnemo::core {

const TokenInput& token_input(const ModelInput& input) {
  const auto* tokens = std::get_if<TokenInput>(&input);
  base::require(tokens != nullptr, "expected {}, found {}", model_of(InputKind::tokens), model_of(kind_of(input)));
  return *tokens;
}

}  // namespace mnemo::core
