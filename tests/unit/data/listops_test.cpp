#include "data/answers/listops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "data/answers/listops_set.h"
#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

using test::TextFile;

const LinePlace kPlace{"file.tsv", 3};

/// The value of an expression, by recursion over its parentheses, independent of the code under test.
class Reference {
 public:
  static int64_t value(const std::string& text) {
    Reference reader(text);
    const Node found = reader.node();
    EXPECT_EQ(reader.next(), "");
    return found.value;
  }

 private:
  struct Node {
    std::string word;  // an operator, "]", or empty for a value
    std::vector<int64_t> arguments;
    int64_t value = 0;
  };
  explicit Reference(const std::string& text) : words_(text) {}
  std::string next() {
    std::string word;
    words_ >> word;
    return word;
  }
  Node node() {
    const std::string word = next();
    if (word != "(") return word.size() == 1 && std::isdigit(word[0]) ? Node{"", {}, word[0] - '0'} : Node{word, {}, 0};
    Node left = node();
    const Node right = node();
    EXPECT_EQ(next(), ")");
    if (right.word != "]") {
      left.arguments.push_back(right.value);
      return left;
    }
    std::vector<int64_t> all = left.arguments;
    std::sort(all.begin(), all.end());
    int64_t sum = 0;
    for (const int64_t one : all) sum += one;
    const size_t n = all.size();
    const double median = n % 2 == 1 ? static_cast<double>(all[n / 2])
                                     : 0.5 * static_cast<double>(all[n / 2 - 1] + all[n / 2]);
    return {"",
            {},
            left.word == "[MIN"   ? all.front()
            : left.word == "[MAX" ? all.back()
            : left.word == "[MED" ? static_cast<int64_t>(median)
                                  : sum % 10};
  }
  std::istringstream words_;
};

std::string model_text(const std::vector<uint8_t>& tokens) {
  std::string text;
  constexpr const char* kWords[] = {"<pad>", "0", "1",    "2",    "3",    "4",   "5", "6",    "7",
                                    "8",     "9", "[MIN", "[MAX", "[MED", "[SM", "X", "<unk>"};
  for (const uint8_t token : tokens) text += std::string(text.empty() ? "" : " ") + kWords[token];
  return text;
}

TEST(ListOps, ValuesOfSmallExpressions) {
  const std::vector<std::tuple<std::string, int64_t, std::string>> cases = {
      {"7", 7, "7"},
      {"( ( ( [MAX 3 ) 1 ) ] )", 3, "[MAX 3 1 X"},
      {"( ( [MIN 4 ) ] )", 4, "[MIN 4 X"},
      {"( ( ( [MED 1 ) 4 ) ] )", 2, "[MED 1 4 X"},
      {"( ( ( ( [MED 9 ) 1 ) 4 ) ] )", 4, "[MED 9 1 4 X"},
      {"( ( ( ( ( [MED 9 ) 0 ) 9 ) 8 ) ] )", 8, "[MED 9 0 9 8 X"},
      {"( ( ( ( [SM 9 ) 8 ) ( ( ( [MIN 5 ) 6 ) ] ) ) ] )", 2, "[SM 9 8 [MIN 5 6 X X"},
  };
  for (const auto& [text, value, as_read] : cases) {
    const ListOpsExpression found = parse_listops(text, kPlace);
    EXPECT_EQ(found.value, value) << text;
    EXPECT_EQ(Reference::value(text), value) << text;
    EXPECT_EQ(model_text(found.tokens), as_read);
    EXPECT_EQ(listops_text(found.tokens), text);
  }
}

TEST(ListOps, ValuesOfTheOriginalPrograms) {
  const std::string folder = std::string(MNEMO_SOURCE_DIR) + "/tests/data/listops/";
  const std::map<std::string, int64_t> files = {
      {"arena_500_2000.tsv", 8}, {"arena_2_200.tsv", 200}, {"nangia_bowman_test.tsv", 100}};
  for (const auto& [name, lines] : files) {
    int64_t count = 0;
    // Reading compares each value with the file's.
    read_listops(folder + name, [&](const ListOpsExpression& expression) {
      ++count;
      EXPECT_EQ(Reference::value(listops_text(expression.tokens)), expression.value);
      EXPECT_TRUE(name != "arena_500_2000.tsv" || (expression.tokens.size() > 500 && expression.tokens.size() < 2000));
      for (const uint8_t token : expression.tokens) EXPECT_TRUE(token >= kZero && token <= kClose);
    });
    EXPECT_EQ(count, lines) << name;
  }
}

TEST(ListOps, WhatDoesNotParseIsToldByFileLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "file.tsv:3:1: expected an expression, found nothing"},
      {"( ( ( [MAX 3 ) 1 ) ]", "file.tsv:3:21: expected the expression to go on, found its end"},
      {"( [MAX 3 )", "file.tsv:3:11: expected the expression to go on, found its end"},
      {"( ( [MAX 3 ) ] ) )", "file.tsv:3:18: expected the line's end, found ')'"},
      {"7 8", "file.tsv:3:3: expected the line's end, found '8'"},
      {"( ( [AVG 3 ) ] )",
       "file.tsv:3:5: expected '(', ')', a digit, '[MIN', '[MAX', '[MED', '[SM' or ']', found '[AVG'"},
      {"( ( [MAX 13 ) ] )",
       "file.tsv:3:10: expected '(', ')', a digit, '[MIN', '[MAX', '[MED', '[SM' or ']', found '13'"},
      {"( ( [MAX X ) ] )", "found 'X'"},
      {"( ( [MAX [MIN ) ] )", "file.tsv:3:10: expected an argument or ']', found '[MIN'"},
      {"( [MAX ] )", "file.tsv:3:10: expected an operator with an argument at least, found ')'"},
      {"( 3 4 )", "file.tsv:3:7: expected an operator on the left of what ends here, found ')'"},
      {"( 3 )", "file.tsv:3:5: expected an argument or ']', found ')'"},
      {"( )", "file.tsv:3:3: expected '(', an operator or a digit, found ')'"},
      {")", "file.tsv:3:1: expected '(' or a digit, found ')'"},
      {"]", "file.tsv:3:1: expected '(', an operator or a digit, found ']'"},
      {"[MAX 3 ]", "file.tsv:3:1: expected '(' or a digit, found '[MAX'"},
      {"( ( [MAX 3 4 ) ] )", "file.tsv:3:12: expected ')', found '4'"},
      {"( ( [MAX 3 ) ( [MIN 4 ) )",
       "file.tsv:3:25: expected ']' before an operator with its arguments ends, found ')'"},
  };
  for (const auto& [text, message] : cases) {
    const std::string found = test::input_error_of([&] { parse_listops(text, kPlace); });
    EXPECT_NE(found.find(message), std::string::npos) << text << "\nexpected: " << message << "\nfound: " << found;
  }
  // A million parentheses need no recursion.
  std::string deep;
  for (int i = 0; i < 1'000'000; ++i) deep += "( ";
  EXPECT_INPUT_ERROR(parse_listops(deep, kPlace), "expected the expression to go on");
}

TEST(ListOps, ColumnsAndValuesOfALineAreChecked) {
  EXPECT_EQ(parse_listops_line("( ( [MAX 3 ) ] )\t3", kPlace, false).value, 3);
  EXPECT_EQ(parse_listops_line("3\t( ( [MAX 3 ) ] )", kPlace, true).value, 3);
  EXPECT_INPUT_ERROR(parse_listops_line("( ( [MAX 3 ) ] )", kPlace, false),
                     "file.tsv:3:17: expected two columns with a tab between, Source");
  EXPECT_INPUT_ERROR(parse_listops_line("3\t3\t3", kPlace, true),
                     "file.tsv:3:4: expected two columns, value and expression, found more");
  EXPECT_INPUT_ERROR(parse_listops_line("3\t10", kPlace, false),
                     "file.tsv:3:3: expected a value from 0 to 9, found '10'");
  EXPECT_INPUT_ERROR(parse_listops_line("( ( [MAX 3 ) ] )\t4", kPlace, false),
                     "file.tsv:3:18: expected the expression's value, 3, found 4");
  EXPECT_INPUT_ERROR(parse_listops_line("4\t( ( [MAX 3 ) ) )", kPlace, true),
                     "file.tsv:3:16: expected an argument or ']', found ')'");
  const TextFile marked("\xEF\xBB\xBFSource\tTarget\n3\t3\n");
  int64_t lines = 0;
  read_listops(marked.path(), [&](const auto&) { ++lines; });
  EXPECT_EQ(lines, 1);
  const TextFile wrong("source\ttarget\n3\t3\n"), none("Source\tTarget\n");
  EXPECT_INPUT_ERROR(read_listops(wrong.path(), [](const auto&) {}), ":1:1: expected a line \"Source<TAB>Target\"");
  EXPECT_INPUT_ERROR(read_listops(none.path(), [](const auto&) {}), "expected ListOps expressions, found none");
}

ListOpsOptions short_options() {
  ListOpsOptions options;
  options.train_samples = 4000;
  options.valid_samples = 50;
  options.test_samples = 50;
  options.min_length = 10;
  options.max_length = 100;
  options.max_depth = 5;
  options.max_args = 4;
  return options;
}

TEST(ListOps, MadeExpressionsKeepTheirLimitsAndDiffer) {
  const ListOpsOptions options = short_options();
  std::set<std::vector<uint8_t>> seen;
  std::map<uint8_t, int64_t> operators;
  std::map<int64_t, int64_t> parts;
  make_listops(options, [&](Part part, const ListOpsExpression& expression) {
    ++parts[static_cast<int64_t>(part)];
    EXPECT_TRUE(seen.insert(expression.tokens).second);
    EXPECT_TRUE(expression.tokens.size() > 10 && expression.tokens.size() < 100);
    const std::string text = listops_text(expression.tokens);
    EXPECT_EQ(Reference::value(text), expression.value);
    EXPECT_EQ(parse_listops(text, kPlace).tokens, expression.tokens);
    int64_t depth = 1;
    std::vector<int64_t> arguments;
    for (const uint8_t token : expression.tokens) {
      if (token != kClose && !arguments.empty()) ++arguments.back();
      if (token >= kMin && token <= kSum) {
        ++operators[token];
        arguments.push_back(0);
        depth = std::max(depth, static_cast<int64_t>(arguments.size()) + 1);
      } else if (token == kClose) {
        EXPECT_TRUE(arguments.back() >= 2 && arguments.back() <= 4);
        arguments.pop_back();
      }
    }
    EXPECT_LE(depth, 5);
    return true;
  });
  EXPECT_EQ(parts, (std::map<int64_t, int64_t>{{0, 4000}, {1, 50}, {2, 50}}));
  int64_t all = 0;
  for (const auto& [token, count] : operators) all += count;
  for (const auto& [token, count] : operators)
    EXPECT_NEAR(static_cast<double>(count), 0.25 * static_cast<double>(all),
                5 * std::sqrt(0.1875 * static_cast<double>(all)));
}

TEST(ListOps, DrawsFollowTheArenasDistribution) {
  // Unlimited in length: a node is a digit with probability 3/4, and an operator has 2 to max_args arguments.
  const ListOpsShape shape{.max_depth = 3, .max_args = 10, .min_length = 0, .max_length = 1 << 20};
  int64_t digits = 0, children = 0, inner_digits = 0;
  constexpr int64_t kDraws = 40000;
  std::map<int64_t, int64_t> arguments;
  for (int64_t i = 0; i < kDraws; ++i) {
    base::Random random{static_cast<uint64_t>(i)};
    const ListOpsExpression expression = *draw_listops(shape, random);
    digits += expression.tokens.size() == 1 ? 1 : 0;
    if (expression.tokens.size() == 1) continue;
    int64_t depth = 0, own = 0;
    for (const uint8_t token : expression.tokens) {
      if (depth == 1 && token != kClose) {
        ++own;
        inner_digits += token < kMin ? 1 : 0;
      }
      depth += token == kClose ? -1 : token >= kMin ? 1 : 0;
    }
    children += own;
    ++arguments[own];
  }
  const auto near = [](int64_t count, double probability, double draws) {
    EXPECT_NEAR(static_cast<double>(count), probability * draws,
                5 * std::sqrt(draws * probability * (1 - probability)));
  };
  near(digits, 0.75, kDraws);
  near(inner_digits, 0.75, static_cast<double>(children));
  EXPECT_EQ(arguments.size(), 9U);
  for (const auto& [count, times] : arguments) near(times, 1.0 / 9, static_cast<double>(kDraws - digits));
}

TEST(ListOps, SetsComeFromTheSeedAlone) {
  const auto labels = [](const ListOpsOptions& options) {
    const LabelledSets sets = load_listops(options);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < sets.train->size(); ++i) all.push_back(100 * sets.train->length(i) + sets.train->label(i));
    EXPECT_EQ(sets.valid->size(), 50);
    return all;
  };
  ListOpsOptions options = short_options(), other = options;
  other.seed = 1;
  EXPECT_EQ(labels(options), labels(options));
  EXPECT_NE(labels(options), labels(other));
  options.max_depth = 2;
  options.max_args = 2;
  options.min_length = 2;
  EXPECT_INPUT_ERROR(load_listops(options),
                     "data.max_depth = 2, data.max_args = 2");  // 4 * 10 * 10 expressions of two digits
  options.max_length = 3;
  EXPECT_INPUT_ERROR(base::check_options(options), "min_length");
  options.train = "file.tsv";  // of which nothing is generated
  EXPECT_INPUT_ERROR(base::check_options(options), "'train_samples'");
  ListOpsOptions file;
  file.train = options.train;
  file.max_length = 3;
  EXPECT_NO_THROW(base::check_options(file));
  for (int64_t ListOpsOptions::*key :
       {&ListOpsOptions::train_samples, &ListOpsOptions::valid_samples, &ListOpsOptions::test_samples,
        &ListOpsOptions::max_depth, &ListOpsOptions::max_args, &ListOpsOptions::min_length, &ListOpsOptions::seed}) {
    ListOpsOptions generated = file;
    generated.*key = 7;
    EXPECT_INPUT_ERROR(base::check_options(generated), "has no effect on expressions that are read from a file");
  }
}

}  // namespace
}  // namespace mnemo::data
