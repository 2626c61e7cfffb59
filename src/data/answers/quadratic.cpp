#include "data/answers/quadratic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kStartToken = 1;

/// The integer part of a uniform number in (-100, 100): 0 covers two of the 200 unit intervals.
int64_t draw_root(base::Random& random) {
  const auto interval = static_cast<int64_t>(random.below(200));
  return interval < 100 ? interval - 99 : interval - 100;
}

/// round(u) for u uniform in (1, 10), drawn as one of 18 half-unit intervals, with a random sign.
int64_t draw_multiplier(base::Random& random) {
  const auto half = static_cast<int64_t>(random.below(18));
  const int64_t multiplier = 1 + (half + 1) / 2;
  return random.below(2) == 0 ? multiplier : -multiplier;
}

std::string equation(int64_t a, int64_t b, int64_t c) {
  const std::string square = a == 1 ? "x^2" : a == -1 ? "-x^2" : fmt::format("{}*x^2", a);
  return fmt::format("{}{:+}*x{:+}=0", square, b, c);
}

void append_field(std::vector<int64_t>& tokens, std::string_view text) {
  base::ensure(static_cast<int64_t>(text.size()) <= kFieldLength, "a field of {} characters: {}", text.size(), text);
  for (const char c : text) {
    const size_t token = kQuadraticAlphabet.find(c);
    base::ensure(token != std::string_view::npos, "no token for '{}'", c);
    tokens.push_back(static_cast<int64_t>(token));
  }
  tokens.resize(tokens.size() + static_cast<size_t>(kFieldLength) - text.size(), 0);
}

}  // namespace

std::vector<int64_t> make_quadratic(base::Random& random) {
  const bool has_roots = random.below(5) != 0;
  const int64_t multiplier = draw_multiplier(random);
  int64_t b = 0, c = 0, first = 0, second = 0;
  if (has_roots) {
    first = draw_root(random);
    second = draw_root(random);
    if (second < first) std::swap(first, second);
    b = -(first + second);
    c = first * second;
  } else {
    b = static_cast<int64_t>(random.below(399)) - 199;
    const int64_t least = b * b / 4 + 1;
    c = least + static_cast<int64_t>(random.below(static_cast<uint64_t>(10000 - least)));
  }
  std::vector<int64_t> tokens;
  tokens.reserve(static_cast<size_t>(1 + (1 + kQuadraticFields) * kFieldLength));
  append_field(tokens, equation(multiplier, multiplier * b, multiplier * c));
  tokens.push_back(kStartToken);
  if (!has_roots) {
    tokens.resize(tokens.size() + static_cast<size_t>(kQuadraticFields * kFieldLength), 0);
    return tokens;
  }
  const int64_t root = second - first;  // of D = b^2 - 4c = (x1 - x2)^2
  const std::string last_term = c < 0 ? fmt::format("({})", c) : std::to_string(c);
  append_field(tokens, equation(1, b, c));
  append_field(tokens, fmt::format("D={}^2-4*1*{}={}={}^2", std::abs(b), last_term, root * root, root));
  append_field(tokens, fmt::format("x=({}-{})/2={}", -b, root, first));
  append_field(tokens, fmt::format("x=({}+{})/2={}", -b, root, second));
  append_field(tokens, fmt::format("{},{}", first, second));
  return tokens;
}

std::string quadratic_text(std::span<const int64_t> tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    base::ensure(token >= 0 && token < static_cast<int64_t>(kQuadraticAlphabet.size()), "no character for token {}",
                 token);
    if (token > 0) text += kQuadraticAlphabet[static_cast<size_t>(token)];
  }
  return text;
}

}  // namespace mnemo::data
