#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"

namespace mnemo::data {

/// Quadratic equations with integer coefficients, solved step by step (Bulatov, Kuratov and Burtsev 2022, appendix
/// A.3).
///
///   -4*x^2+392*x-2208=0   the equation      g   x^2-98*x+552=0   D=98^2-4*1*552=7396=86^2   x=(98-86)/2=6
///   x=(98+86)/2=92   6,92
///
/// One equation and five fields of kFieldLength characters each, padded on the right; `g` starts the answer. Roots are
/// the integer parts of uniform numbers in (-100, 100), the smaller one first; every coefficient is multiplied by
/// +-round(u), u uniform in (1, 10). One equation in five has no real root: x^2+b*x+c with |b| < 200, b^2/4 < c <
/// 10000; its five fields are empty. Where the paper does not specify it: b and c are always written, even if 0 or 1,
/// and a negative c is in parentheses inside D.
inline constexpr int64_t kFieldLength = 30;
inline constexpr int64_t kQuadraticFields = 5;

/// The character of each token id: nothing (padding), g, digits from 2 on, then + - * / ^ = ( ) x D ; and a comma. This
/// is the authors' table.
inline constexpr std::string_view kQuadraticAlphabet{"\0g0123456789+-*/^=()xD;,", 24};

/// Equation, start token, fields: 30 + 1 + 5 * 30 tokens.
std::vector<int64_t> make_quadratic(base::Random& random);

/// Tokens as text, without padding.
std::string quadratic_text(std::span<const int64_t> tokens);

}  // namespace mnemo::data
