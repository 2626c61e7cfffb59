#include "base/toml_scan.h"

#include <algorithm>
#include <vector>

#include "base/utf8.h"

namespace mnemo::base {
namespace {

// The possible error of the depth estimate: the brackets of a list inside a list's value, and the point of a number.
constexpr size_t kSlack = 4;
// Tokens that a value may use: its key's dots, the equals sign or comma, a number's point.
constexpr int64_t kTokensPerValue = 4;

bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

class Scanner {
 public:
  Scanner(std::string_view text, const std::string& file, const ReadLimits& limits)
      : text_(text), file_(file), limits_(limits) {}

  void run() {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        line_is_blank_ = false;
        continue;
      }
      if (c == '#') {
        skip_comment();
        continue;
      }
      ++at_;
      if (c == '\n') {
        new_line();
      } else if (c != ' ' && c != '\t' && c != '\r') {
        symbol(c);
        line_is_blank_ = false;
      }
    }
  }

 private:
  void symbol(char c) {
    // Not TOML, and toml++ 3.3 has undefined behaviour when it tests whether such a character is whitespace.
    require(!beyond_ascii(c), "{}:{}: non-ASCII character outside a string", file_, line_);
    if (c == '[' && line_is_blank_ && open_.empty()) {
      in_header_ = true;
      header_ = 1;
      count();
      return;
    }
    switch (c) {
      case '.':
        in_header_ ? ++header_ : ++dots_;
        count();
        break;
      case '[':
      case '{':
        if (in_header_) break;
        open_.push_back(dots_);
        open_sum_ += dots_ + 1;
        dots_ = 0;
        count();
        break;
      case ']':
      case '}':
        if (in_header_ || open_.empty()) break;
        dots_ = open_.back();
        open_sum_ -= dots_ + 1;
        open_.pop_back();
        break;
      case ',':
        dots_ = 0;
        count();
        break;
      case '=':
        count();
        break;
      default:
        break;
    }
  }

  void count() {
    require(header_ + open_sum_ + dots_ <= static_cast<size_t>(limits_.max_depth) + kSlack,
            "{}:{}: nested deeper than {} levels", file_, line_, limits_.max_depth);
    require(++tokens_ <= kTokensPerValue * limits_.max_values, "{}:{}: more than {} values", file_, line_,
            limits_.max_values);
  }

  void new_line() {
    ++line_;
    dots_ = 0;
    in_header_ = false;
    line_is_blank_ = true;
  }

  void skip_comment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void skip_string(char quote) {
    const std::string triple(3, quote);
    if (text_.substr(at_, 3) == triple) {
      at_ += 3;
      while (at_ < text_.size() && text_.substr(at_, 3) != triple) {
        if (text_[at_] == '\\' && quote == '"') {
          advance();
          continue_line();
        }
        advance();
      }
      // The closing quotes may be preceded by up to two quotes that belong to the string.
      for (int i = 0; i < 5 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;
      return;
    }
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\' && quote == '"') ++at_;
      ++at_;
    }
    at_ = std::min(at_, text_.size());
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  /// A backslash at the end of a line joins it with the next one. toml++ then makes the test described in symbol().
  void continue_line() {
    size_t next = at_;
    while (next < text_.size() && std::string_view(" \t\r\n").find(text_[next]) != std::string_view::npos) ++next;
    require(next == text_.size() || !beyond_ascii(text_[next]),
            "{}:{}: non-ASCII character after '\\' (and line breaks): write it as \\uXXXX", file_, line_);
  }

  void advance() {
    if (at_ < text_.size() && text_[at_++] == '\n') ++line_;
  }

  std::string_view text_;
  const std::string& file_;
  const ReadLimits& limits_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_is_blank_ = true;
  bool in_header_ = false;
  size_t header_ = 0;         // parts of the last header's key
  size_t dots_ = 0;           // dots since the last separator
  size_t open_sum_ = 0;       // total depth of everything that is open
  std::vector<size_t> open_;  // for each open bracket, the dots before it
  int64_t tokens_ = 0;
};

}  // namespace

void scan_toml(std::string_view text, const std::string& file, const ReadLimits& limits) {
  Scanner(text, file, limits).run();
}

}  // namespace mnemo::base
