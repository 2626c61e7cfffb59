#include "infer/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "tests/support/expect_error.h"
#include "tests/support/pieces_tokenizer.h"

namespace mnemo::infer {
namespace {

using Pieces = test::PiecesTokenizer;

struct Written {
  std::string text, rest;  // rest: what finish() gives
  FinishReason reason;
  int64_t count;
};

/// The text of tokens 0, 1, …, which stand for these pieces.
Written written(const std::vector<std::string>& pieces, const GenerateOptions& options,
                std::vector<int64_t> end_tokens = {}) {
  TextStream stream(std::make_shared<Pieces>(pieces), std::move(end_tokens));
  stream.begin(options);
  std::string text;
  for (size_t token = 0; token < pieces.size() && !stream.ended(); ++token) {
    const std::string piece = stream.put(static_cast<int64_t>(token));
    EXPECT_FALSE(base::first_invalid_utf8(piece).has_value());
    text += piece;
  }
  return {text, stream.finish(), stream.finish_reason(), stream.count()};
}

TEST(TextStream, EndsAtTheStopTextThatIsCompleteFirstWhereverThePiecesEnd) {
  for (const auto& [stops, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"abcd", "c"}, "xab"},
                                                                     {{"c", "abcd"}, "xab"},
                                                                     {{"bc", "c"}, "xa"},
                                                                     {{"bcd", "abc"}, "x"},
                                                                     {{"q"}, "xabcd"}}) {
    const std::string text = "xabcd";
    const auto all = [&, &stops = stops](const std::vector<std::string>& pieces) {
      return written(pieces, {.max_tokens = static_cast<int64_t>(pieces.size()), .stop = stops}).text;
    };
    EXPECT_EQ(all({text}), expected);
    EXPECT_EQ(all({"x", "a", "b", "c", "d"}), expected);
    for (size_t cut = 1; cut < text.size(); ++cut) EXPECT_EQ(all({text.substr(0, cut), text.substr(cut)}), expected);
  }
}

TEST(TextStream, EndsOfStopTextsThatOverlapAreFound) {
  TextStream stream(std::make_shared<Pieces>(std::vector<std::string>{"a", "bc"}));
  stream.begin({.stop = {"aab"}});
  EXPECT_EQ(stream.put(0), "");
  EXPECT_EQ(stream.put(0), "");
  EXPECT_EQ(stream.put(0), "a");
  EXPECT_FALSE(stream.ended());
  EXPECT_EQ(stream.put(1), "");
  EXPECT_EQ(stream.finish_reason(), FinishReason::stop);
  EXPECT_EQ(stream.count(), 4);
  test::expect_error<base::InternalError>([&] { stream.put(0); }, {"takes no more tokens"});
}

TEST(TextStream, SaysWhyATextHasEnded) {
  const std::vector<std::string> pieces = {"a", "b", "c", "d"};
  const auto is = [](const Written& found, const std::string& text, FinishReason reason, int64_t count) {
    EXPECT_EQ(found.text, text);
    EXPECT_EQ(found.reason, reason);
    EXPECT_EQ(found.count, count);
  };
  is(written(pieces, {.max_tokens = 3}), "abc", FinishReason::length, 3);
  is(written(pieces, {.max_tokens = 5}), "abcd", FinishReason::none, 4);
  is(written(pieces, {.max_tokens = 4, .stop = {"d"}}), "abc", FinishReason::stop, 4);
  is(written(pieces, {.max_tokens = 3, .stop = {"cd"}}), "abc", FinishReason::length, 3);
  is(written(pieces, {.stop = {"cde"}}, {3}), "abc", FinishReason::stop, 3);
  is(written(pieces, {.max_tokens = 4, .past_end = true}, {3}), "abcd", FinishReason::length, 4);
  is(written(pieces, {.max_tokens = 0}), "", FinishReason::length, 0);
  EXPECT_EQ(name_of(FinishReason::stop), "stop");
  EXPECT_EQ(name_of(FinishReason::length), "length");
}

TEST(TextStream, AnIncompleteCharacterWaitsForItsEnd) {
  const Written cut = written({"x", "\xE2", "\x82"}, {});
  EXPECT_EQ(cut.text, "x");
  EXPECT_EQ(cut.rest, "\xEF\xBF\xBD");
  EXPECT_EQ(written({"x", "y\xE2", "\x82\xAC"}, {.stop = {"y"}}).rest, "") << "it begins behind the stop text";
  TextStream stream(std::make_shared<Pieces>(std::vector<std::string>{"\xE2", "\x82", "\xAC"}));
  stream.read(0);
  stream.begin({.max_tokens = 1});
  EXPECT_EQ(stream.put(1), "");
  stream.begin({.max_tokens = 1});
  EXPECT_EQ(stream.put(2), "\xE2\x82\xAC") << "it goes on in the next text";
}

TEST(TextStream, StopTextsAreChecked) {
  TextStream stream(std::make_shared<Pieces>(std::vector<std::string>{}));
  test::expect_error<base::InputError>([&] { stream.begin({.stop = {""}}); }, {"stop", "one character"});
  test::expect_error<base::InputError>([&] { stream.begin({.stop = {"\xE2"}}); }, {"stop", "UTF-8"});
}

/// Where the text up to the end of the first complete stop text begins, by definition; nothing: none occurs.
std::optional<std::string> before_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> begin;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.substr(end - stop.size(), stop.size()) != stop) continue;
      begin = std::min(begin.value_or(end), end - stop.size());
    }
    if (begin) return text.substr(0, *begin);
  }
  return std::nullopt;
}

RC_GTEST_PROP(TextStreamProperty, IsTheWholeTextUpToItsFirstStopTextHoweverItIsCut, ()) {
  const std::vector<std::string> alphabet = {"a", "b", "\xC3\xA9", "\xE2\x82\xAC"};
  const auto text_of = [&](int most) {
    std::string text;
    const int characters = *rc::gen::inRange(1, most);
    for (int i = 0; i < characters; ++i) text += *rc::gen::elementOf(alphabet);
    return text;
  };
  const std::string text = text_of(30);
  std::vector<std::string> stops, pieces;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) stops.push_back(text_of(4));
  for (size_t at = 0; at < text.size(); at += pieces.back().size())
    pieces.push_back(text.substr(at, *rc::gen::inRange<size_t>(1, 5)));
  const Written found = written(pieces, {.max_tokens = static_cast<int64_t>(pieces.size()), .stop = stops});
  const std::optional<std::string> before = before_stop(text, stops);
  RC_ASSERT(found.text == before.value_or(text));
  RC_ASSERT(found.reason == (before ? FinishReason::stop : FinishReason::length));
  RC_ASSERT(found.rest.empty());
}

}  // namespace
}  // namespace mnemo::infer
