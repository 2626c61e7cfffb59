#include "page/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/html.h"
#include "base/output.h"
#include "base/text_table.h"

namespace mnemo::page {

namespace {

constexpr size_t kLongTable = 24;  // rows; a longer one is folded

std::string html_row(const std::vector<std::string>& row, size_t left, const char* tag) {
  std::string html = "<tr>";
  for (size_t i = 0; i < row.size(); ++i)
    html += fmt::format("<{0}{1}>{2}</{0}>", tag, i < left ? " class=\"left\"" : "", base::html_escape(row[i]));
  return html + "</tr>";
}

std::string html_table(const Table& cells) {
  std::string html = "<div class=\"scroll\"><table><thead>" + html_row(cells.header, cells.left, "th") +
                     "</thead><tbody>\n";
  for (const auto& row : cells.rows) html += html_row(row, cells.left, "td") + "\n";
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::string text_of(const Table& cells) {
  using Align = base::TextTable::Align;
  std::vector<Align> align(cells.header.size(), Align::right);
  std::fill_n(align.begin(), std::min(cells.left, align.size()), Align::left);
  base::TextTable table(cells.header, align);
  for (const auto& row : cells.rows) table.add_row(row);
  return table.text(base::output_columns());
}

std::string html_of(const Table& cells) {
  if (cells.rows.size() <= kLongTable) return html_table(cells);
  return folded(cells, fmt::format("{} rows", cells.rows.size()));
}

std::string folded(const Table& cells, std::string_view summary) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", base::html_escape(summary), html_table(cells));
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace mnemo::page
