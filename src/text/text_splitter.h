#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace mnemo::text {

/// Splits a text by a regular expression: every match is a piece, and so is the text between two matches. `\s` is
/// Unicode's White_Space. Safe to share between threads.
class TextSplitter {
 public:
  /// Throws InputError that names `where` for an expression that PCRE2 does not compile, with the place in it.
  TextSplitter(const std::string& pattern, const std::string& where);
  ~TextSplitter();
  TextSplitter(const TextSplitter&) = delete;
  TextSplitter& operator=(const TextSplitter&) = delete;

  /// Calls `use` with every piece of a valid UTF-8 text, none of them empty. Throws InputError that names the
  /// constructor's `where` if matching takes more steps than a limit that is proportional to the text.
  void split(std::string_view text, const std::function<void(std::string_view)>& use) const;

  /// GPT-2's expression (Radford et al. 2019).
  static const std::string& gpt2_pattern();
  /// Whether an expression is known to split between an ASCII letter or digit and a space or line end, whatever stands
  /// around them: those of GPT-2, Llama 3 and Qwen2.
  static bool ends_at_words(std::string_view pattern);

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_, where_;
};

}  // namespace mnemo::text
