#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "data/text/lines.h"

namespace mnemo::data {

/// ListOps (Nangia and Bowman 2018): nested lists of digits with the operators MIN, MAX, MED (the median, truncated to
/// an integer) and SM (the sum modulo 10), in the format of the Long Range Arena (Tay et al. 2021): a binary tree in
/// which an operator takes its arguments one by one,
///
///   ( ( ( ( [MAX 4 ) ( ( ( [SM 7 ) 8 ) ] ) ) 2 ) ] )        [MAX 4 [SM 7 8 X 2 X   as a model reads it
///
/// The vocabulary is that of the Long Range Arena: parentheses are omitted, "]" is read as "X". 0 is padding, 1 to 10
/// are the digits.
enum ListOpsToken : uint8_t {
  kPad = 0,
  kZero = 1,
  kMin = 11,
  kMax = 12,
  kMed = 13,
  kSum = 14,
  kClose = 15,
  kUnknown = 16
};
/// Padding, 15 words, and the Long Range Arena's entry for unknown words, which never occurs.
inline constexpr int64_t kListOpsVocabulary = 17;

struct ListOpsExpression {
  std::vector<uint8_t> tokens;
  int64_t value = 0;
};

/// Parses and evaluates an expression at byte `column` of a line. Throws InputError that names file, line and column,
/// what was found and what was expected.
ListOpsExpression parse_listops(std::string_view text, const LinePlace& place, int64_t column = 1);

/// Parses a line of a file: "expression<TAB>value" (Long Range Arena), or "value<TAB>expression" (Nangia and Bowman) if
/// value_first. Throws InputError if it has other columns, does not parse, or has a wrong value.
ListOpsExpression parse_listops_line(std::string_view line, const LinePlace& place, bool value_first);

/// The expression with its parentheses.
std::string listops_text(std::span<const uint8_t> tokens);

/// The distribution of Long Range Arena: a node is a digit with probability 3/4 (always at max_depth), otherwise an
/// operator with 2 to max_args nodes; all choices are uniform.
struct ListOpsShape {
  int64_t max_depth = 10;
  int64_t max_args = 10;
  int64_t min_length = 500;   ///< expressions have more tokens than this
  int64_t max_length = 2000;  ///< and fewer than this
};

/// Draws one tree; nothing unless it has more than min_length and fewer than max_length tokens.
std::optional<ListOpsExpression> draw_listops(const ListOpsShape& shape, base::Random& random);

}  // namespace mnemo::data
