#include "page/table.h"

#include <fmt/format.h>

#include "base/html.h"
#include "base/text_table.h"

namespace mnemo::page {

std::string text_of(const Table& cells) {
  base::TextTable table(cells.header,
                        std::vector<base::TextTable::Align>(cells.header.size(), base::TextTable::Align::right));
  for (const auto& row : cells.rows) table.add_row(row);
  return table.text();
}

std::string html_of(const Table& cells) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& cell : cells.header) html += fmt::format("<th>{}</th>", base::html_escape(cell));
  html += "</tr></thead><tbody>\n";
  for (const auto& row : cells.rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += fmt::format("<td>{}</td>", base::html_escape(cell));
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string share_text(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace mnemo::page
