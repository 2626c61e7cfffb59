#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace mnemo::test {

/// Runs `action` and expects an exception of type Error whose message contains all of `parts`; returns the message.
template <class Error>
std::string expect_error(auto&& action, std::initializer_list<std::string> parts) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "an error of another type: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace mnemo::test
