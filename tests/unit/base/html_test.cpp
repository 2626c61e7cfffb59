#include "base/html.h"

#include <gtest/gtest.h>

namespace mnemo::base {
namespace {

TEST(Html, EscapesTextAndAttributes) {
  EXPECT_EQ(html_escape("<a href=\"x\">'&\xC3\xA4\n"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\xC3\xA4\n");
  EXPECT_EQ(html_escape("a\xFF"
                        "b\xC3"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(html_escape(std::string_view("\0\x1b", 2)), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Html, NoStringEndsAScript) {
  EXPECT_EQ(script_escape("{\"a\": \"</script><!--\"}"), "{\"a\": \"\\u003c/script>\\u003c!--\"}");
  EXPECT_EQ(script_escape("\"\xE2\x80\xA8\xE2\x80\xA9\xE2\x82\xAC\""), "\"\\u2028\\u2029\xE2\x82\xAC\"");
}

}  // namespace
}  // namespace mnemo::base
