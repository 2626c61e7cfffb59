#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace mnemo::base {

/// Invalid input (file, configuration, flag, shape, encoding). The command line prints the message and exits with
/// status 2. The message names what is wrong, where, what was expected and what was found.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A result that is not finite, of input that was read without a fault. The command line exits with status 1.
class NotFinite : public InputError {
 public:
  using InputError::InputError;
};

/// An argument tensor has the wrong shape or type.
class ShapeError : public InputError {
 public:
  using InputError::InputError;
};

/// A bug in Mnemo: an invariant does not hold. The command line exits with status 3.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws InputError with a formatted message.
template <class... Args>
[[noreturn]] void input_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InputError unless `condition` holds.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError unless `condition` holds.
template <class... Args>
void ensure(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mnemo::base
