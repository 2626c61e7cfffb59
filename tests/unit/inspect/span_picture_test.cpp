#include "inspect/draw/span_picture.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <regex>

namespace mnemo::inspect {
namespace {

using core::AttendTable;
using core::Rule;
using core::SpanKind;

AttendTable recurrent() {
  AttendTable table({SpanKind::tokens, 3});
  table.append_context({SpanKind::cache, 2}, Rule::causal());
  table.prepend_rows({SpanKind::read, 2}).append_rows({SpanKind::write, 1});
  table.set_rule(SpanKind::read, SpanKind::read, Rule::all()).set_rule(SpanKind::tokens, SpanKind::read, Rule::all());
  for (const SpanKind kind : {SpanKind::read, SpanKind::tokens, SpanKind::write})
    table.set_rule(SpanKind::write, kind, Rule::all());
  return table;
}

/// Tags open and close in order, attributes are in double quotes, and there is only text between tags.
void expect_well_formed(const std::string& xml) {
  static const std::regex tag(
      R"re(<(/?)([A-Za-z][A-Za-z0-9]*)((?:\s+[A-Za-z_:][-A-Za-z0-9_:.]*="[^"<&]*")*)\s*(/?)>)re");
  std::vector<std::string> open;
  size_t end = 0;
  for (auto at = std::sregex_iterator(xml.begin(), xml.end(), tag); at != std::sregex_iterator(); ++at) {
    const std::string between = xml.substr(end, static_cast<size_t>(at->position()) - end);
    EXPECT_EQ(between.find_first_of("<>&"), std::string::npos) << between;
    end = static_cast<size_t>(at->position() + at->length());
    if ((*at)[1] == "/") {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*at)[2].str());
      open.pop_back();
    } else if ((*at)[4] != "/") {
      open.push_back((*at)[2].str());
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(xml.substr(end), "\n");
}

/// Number of attended cells in the picture: the total width of the rectangles, in cells.
int64_t cells_of(const std::string& svg, double cell) {
  static const std::regex pair(R"re(width="([0-9.]+)" height="[0-9.]+" fill="#[0-9a-f]+" opacity)re");
  double cells = 0;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), pair); at != std::sregex_iterator(); ++at) {
    cells += std::stod((*at)[1]) / cell;
  }
  return std::llround(cells);
}

TEST(SpanPicture, IsWellFormedAndShowsEveryCell) {
  AttendTable padded = recurrent();
  padded.set_valid(at::zeros({1, 8}, at::kBool));  // a picture shows the rules, not a batch's padding
  for (const AttendTable& table :
       {AttendTable({SpanKind::tokens, 3}), recurrent(), padded, AttendTable({SpanKind::tokens, 0}),
        AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 3})}) {
    const std::string svg = svg_of(table);
    expect_well_formed(svg);
    AttendTable plain = table;
    EXPECT_EQ(cells_of(svg, 14.0), plain.set_valid({}).expand().sum().item<int64_t>());
  }
  const AttendTable large({SpanKind::tokens, 200});
  expect_well_formed(svg_of(large));
  EXPECT_LT(svg_of(large).size(), 60000U) << "neighbouring cells should be one rectangle";
}

}  // namespace
}  // namespace mnemo::inspect
