#include "data/text/documents.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

/// The documents of a text that arrives in chunks of `chunk` bytes.
std::vector<std::string> documents(const DocumentRule& rule, std::string_view text, size_t chunk) {
  std::vector<std::string> out{""};
  DocumentSplitter splitter(rule, [&](std::string_view part, bool starts) {
    if (starts) out.emplace_back();
    out.back() += part;
  });
  for (size_t at = 0; at < text.size(); at += chunk) splitter.put(text.substr(at, chunk));
  splitter.finish();
  return out;
}

using Texts = std::vector<std::string>;

TEST(Documents, BlankLine) {
  const DocumentRule rule = DocumentRule::parse("blank_line", "");
  EXPECT_EQ(documents(rule, "\n \na\nb\n\n \t\r\nc\n\n", 3), (Texts{"\n \na\nb\n\n \t\r\n", "c\n\n"}));
  EXPECT_EQ(documents(rule, "a\n\nb", 1), (Texts{"a\n\n", "b"}));
  EXPECT_EQ(documents(rule, "", 1), (Texts{""}));
}

TEST(Documents, Heading) {
  EXPECT_TRUE(is_heading(" = Homarus gammarus = \n"));
  EXPECT_TRUE(is_heading(" = 1 + 1 = 2 = \n"));
  EXPECT_FALSE(is_heading(" = = Description = = \n"));
  EXPECT_FALSE(is_heading(" = = = Deeper = = = \n"));
  EXPECT_FALSE(is_heading("=\n"));
  EXPECT_FALSE(is_heading("= =\n"));
  EXPECT_FALSE(is_heading("a = b\n"));
  const DocumentRule rule = DocumentRule::parse("heading", "");
  const std::string
      first = " \n = A = \n \n x \n \n = = S = = \n \n Key ; W \n = wins ; L = \n \n losses \n \n = t = \n y \n \n";
  const std::string second = " = B = \n \n z \n \n";
  for (size_t chunk = 1; chunk < 100; ++chunk) {
    EXPECT_EQ(documents(rule, first + second + " = C = ", chunk), (Texts{first, second, " = C = "}));
  }
  EXPECT_EQ(documents(rule, " = A = \n \n x \n", 5), (Texts{" = A = \n \n x \n"}));
}

TEST(Documents, Line) {
  const DocumentRule rule = DocumentRule::parse("line", " <end> ");
  EXPECT_EQ(rule.line, "<end>");
  EXPECT_EQ(documents(rule, "<end>\na\n<end> x\n<end>\r\n\n<end>\nb\n<end>", 4),
            (Texts{"<end>\na\n<end> x\n<end>\r\n\n<end>\n", "b\n<end>"}));
}

TEST(Documents, NoneIsOne) { EXPECT_EQ(documents({}, "a\n\n = B = \n", 2), (Texts{"a\n\n = B = \n"})); }

TEST(Documents, LinesOf64KBAreContent) {
  const std::string line = " = " + std::string(70000, 'x') + " = ";
  for (const size_t chunk : {size_t{1000}, size_t{1} << 20}) {
    EXPECT_EQ(documents(DocumentRule::parse("heading", ""), "a\n\n" + line + "\n\n = B = \n", chunk),
              (Texts{"a\n\n" + line + "\n\n", " = B = \n"}));
    EXPECT_EQ(documents(DocumentRule::parse("blank_line", ""), "a\n\n" + std::string(70000, ' ') + "b\n\nc", chunk),
              (Texts{"a\n\n", std::string(70000, ' ') + "b\n\n", "c"}));
  }
}

TEST(Documents, BadRules) {
  EXPECT_INPUT_ERROR(DocumentRule::parse("blank", ""), "found \"blank\"");
  EXPECT_INPUT_ERROR(DocumentRule::parse("line", " "), "separator_line");
  EXPECT_INPUT_ERROR(DocumentRule::parse("line", "a\nb"), "separator_line");
}

RC_GTEST_PROP(Documents, SameInAnyChunksAndNothingIsLost, ()) {
  const auto pieces = *rc::gen::container<Texts>(
      rc::gen::element<std::string>("\n", " ", "= A =", "= = B = =", "x", "<e>", "é"));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  for (const char* name : {"none", "blank_line", "heading", "line"}) {
    const DocumentRule rule = DocumentRule::parse(name, "<e>");
    const Texts whole = documents(rule, text, text.size() + 1);
    RC_ASSERT(whole == documents(rule, text, *rc::gen::inRange<size_t>(1, 10)));
    std::string joined;
    for (const std::string& document : whole) joined += document;
    RC_ASSERT(joined == text);
    for (const std::string& document : whole) {
      RC_ASSERT(whole.size() == 1 || document.find_first_not_of(" \n") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace mnemo::data
