#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mnemo::infer {

/// Ends a stream of text where one of several texts occurs, wherever the stream is cut into pieces.
class StopText {
 public:
  /// Throws InputError for a text that is empty or not valid UTF-8.
  explicit StopText(std::vector<std::string> stops);

  /// Takes the next piece and returns what is certain to come before any stop text: all but an end that may begin one.
  /// Once a stop text has occurred, everything before it has been returned.
  std::string put(std::string_view piece);
  /// The text held back, at the end of the stream.
  std::string finish();
  /// Whether a stop text has occurred. put() must not be called any more.
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace mnemo::infer
