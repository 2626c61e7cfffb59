#pragma once

#include <string>
#include <utility>

#include "serve/api_error.h"

namespace mnemo::serve {

/// The status and code of an error; 0 without.
inline std::pair<int, std::string> refusal(auto&& action) {
  try {
    action();
  } catch (const ApiError& error) {
    return {error.status, error.code};
  }
  return {};
}

}  // namespace mnemo::serve
