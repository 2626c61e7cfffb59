#pragma once

#include <stdexcept>
#include <string>

namespace mnemo::serve {

/// A request that is refused. The body of the answer names message, code and parameter as OpenAI's API does.
struct ApiError : std::runtime_error {
  ApiError(int status_of, const std::string& message, std::string param_of = {}, std::string code_of = {})
      : std::runtime_error(message), status(status_of), param(std::move(param_of)), code(std::move(code_of)) {}
  int status;
  std::string param, code;
};

}  // namespace mnemo::serve
