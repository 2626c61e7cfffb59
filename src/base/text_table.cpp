#include "base/text_table.h"

#include <algorithm>

#include "base/error.h"

namespace mnemo::base {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 20;

std::string pad(const std::string& cell, size_t width, TextTable::Align align) {
  const size_t used = text_width(cell);
  const std::string spaces(width > used ? width - used : 0, ' ');
  return align == TextTable::Align::right ? spaces + cell : cell + spaces;
}

void end_line(std::string& out) {
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out += '\n';
}

}  // namespace

size_t text_width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string> wrap_words(std::string_view text, size_t width) {
  if (width == 0 || text_width(text) <= width) return {std::string(text)};
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    std::string& line = lines.back();
    if (line.empty()) {
      line = word;
    } else if (text_width(line) + 1 + text_width(word) <= width) {
      line += ' ';
      line += word;
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

TextTable::TextTable(std::vector<std::string> header, std::vector<Align> align)
    : header_(std::move(header)), align_(std::move(align)) {
  ensure(!header_.empty(), "a table needs at least one column");
}

void TextTable::add_row(std::vector<std::string> cells) {
  ensure(cells.size() <= header_.size(), "a row has {} cells, but the table has {} columns", cells.size(),
         header_.size());
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(size_t width) const {
  const size_t columns = header_.size();
  std::vector<size_t> widths(columns);
  for (size_t c = 0; c < columns; ++c) {
    widths[c] = text_width(header_[c]);
    for (const auto& row : rows_) widths[c] = std::max(widths[c], text_width(row[c]));
  }
  size_t before_last = 0;
  for (size_t c = 0; c + 1 < columns; ++c) before_last += widths[c] + kGap;
  if (width > 0) {
    const size_t room = width > before_last ? width - before_last : 0;
    widths.back() = std::min(widths.back(), std::max(room, kNarrowest));
  }

  std::string out;
  auto write = [&](const std::vector<std::string>& cells) {
    const std::vector<std::string> last = wrap_words(cells.back(), width == 0 ? 0 : widths.back());
    for (size_t c = 0; c + 1 < columns; ++c) out += pad(cells[c], widths[c], align(c)) + std::string(kGap, ' ');
    out += pad(last.front(), widths.back(), align(columns - 1));
    end_line(out);
    for (size_t i = 1; i < last.size(); ++i) {
      out += std::string(before_last, ' ') + pad(last[i], widths.back(), align(columns - 1));
      end_line(out);
    }
  };
  write(header_);
  for (size_t c = 0; c < columns; ++c) out += std::string(widths[c], '-') + (c + 1 < columns ? "  " : "\n");
  for (const auto& row : rows_) write(row);
  return out;
}

std::string TextTable::markdown() const {
  auto line = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const std::string& cell : cells) {
      out += ' ';
      for (char c : cell) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
      }
      out += " |";
    }
    return out + "\n";
  };
  std::string out = line(header_) + "|";
  for (size_t c = 0; c < header_.size(); ++c) out += align(c) == Align::right ? " ---: |" : " --- |";
  out += '\n';
  for (const auto& row : rows_) out += line(row);
  return out;
}

}  // namespace mnemo::base
