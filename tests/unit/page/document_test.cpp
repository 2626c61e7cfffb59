#include "page/document.h"

#include <gtest/gtest.h>

#include "base/node.h"

namespace mnemo::page {
namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Document, EscapesItsTitleAndLoadsNothing) {
  Document page("a <b> & c");
  page.use("charts.js");
  page.use("charts.js");
  const std::string html = page.html();
  EXPECT_TRUE(holds(html, "<h1>a &lt;b&gt; &amp; c</h1>"));
  EXPECT_TRUE(holds(html, "Content-Security-Policy\" content=\"default-src 'none'"));
  EXPECT_FALSE(holds(html, "src=\"http"));
  EXPECT_EQ(html.find("Draws curves from"), html.rfind("Draws curves from")) << "a script is used once";
}

TEST(Document, LeavesOutWhatWouldMakeItTooLarge) {
  Document page("large");
  const std::string half(kMaxPageBytes / 2, 'x');
  page.add(half, "the first half");
  page.add(half, "the second half");
  page.add("<p>the end</p>", "the end");
  EXPECT_FALSE(page.add_data("more", base::Node(half), "the data"));
  EXPECT_TRUE(page.add_data("few", base::Node(1), "a number"));
  const std::string html = page.html();
  EXPECT_LE(html.size(), kMaxPageBytes);
  EXPECT_TRUE(holds(html, "Left out: the second half; the page would be larger than 32 MB."));
  EXPECT_TRUE(holds(html, "Left out: the data;"));
  EXPECT_FALSE(holds(html, "Left out: the first half"));
  EXPECT_TRUE(holds(html, "<p>the end</p>"));
  EXPECT_TRUE(holds(html, "id=\"few\">1</script>"));
}

TEST(Document, PicturesAreDataAndListingsText) {
  EXPECT_TRUE(
      holds(picture("<svg onload=\"x\"/>", "a \"b\""), "alt=\"a &quot;b&quot;\" src=\"data:image/svg+xml,%3Csvg"));
  EXPECT_EQ(listing("a < b"), "<pre data-copy>a &lt; b</pre>\n");
  EXPECT_TRUE(holds(figure("<svg/>", "who <looks>", "maps"), "<figcaption>who &lt;looks&gt;</figcaption>"));
}

}  // namespace
}  // namespace mnemo::page
