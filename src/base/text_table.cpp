#include "base/text_table.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace mnemo::base {
namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 20;  // of a last column that is broken between words
constexpr size_t kTightest = 8;    // of columns whose words are cut

std::string pad(const std::string& cell, size_t width, TextTable::Align align) {
  const size_t used = text_width(cell);
  const std::string spaces(width > used ? width - used : 0, ' ');
  return align == TextTable::Align::right ? spaces + cell : cell + spaces;
}

void end_line(std::string& out) {
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out += '\n';
}

size_t longest_word(const std::string& cell) {
  size_t longest = 0;
  for (const std::string& word : wrap_words(cell, 1)) longest = std::max(longest, text_width(word));
  return longest;
}

/// The lines in pieces of at most `width` characters.
std::vector<std::string> cut_words(const std::vector<std::string>& lines, size_t width) {
  std::vector<std::string> cut;
  for (const std::string& line : lines) {
    cut.emplace_back();
    size_t used = 0;
    for (const char c : line) {
      const bool starts = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      if (starts && used == width) {
        cut.emplace_back();
        used = 0;
      }
      used += starts ? 1 : 0;
      cut.back() += c;
    }
  }
  return cut;
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

std::vector<size_t> TextTable::widths(size_t width, bool& tight) const {
  const size_t columns = header_.size();
  std::vector<size_t> widths(columns), least(columns);  // of whole cells, and of whole words
  for (size_t c = 0; c < columns; ++c) {
    widths[c] = text_width(header_[c]);
    least[c] = longest_word(header_[c]);
    for (const auto& row : rows_) {
      widths[c] = std::max(widths[c], text_width(row[c]));
      least[c] = std::max(least[c], longest_word(row[c]));
    }
  }
  const size_t gaps = (columns - 1) * kGap, before_last = std::accumulate(widths.begin(), widths.end() - 1, gaps);
  tight = width > 0 && before_last + std::min(widths.back(), kNarrowest) > width && columns > 1;
  if (width > 0 && !tight)
    widths.back() = std::min(widths.back(), std::max(width > before_last ? width - before_last : 0, kNarrowest));
  if (!tight) return widths;
  if (size_t used = std::accumulate(least.begin(), least.end(), gaps); used <= width) {
    for (; used < width; ++used) {  // to the narrowest column that is broken
      size_t narrowest = columns;
      for (size_t c = 0; c < columns; ++c)
        if (least[c] < widths[c] && (narrowest == columns || least[c] < least[narrowest])) narrowest = c;
      if (narrowest == columns) break;
      ++least[narrowest];
    }
    return least;
  }
  // Words are cut: the widest columns share what narrower ones leave.
  std::vector<size_t> sorted = widths;
  std::sort(sorted.begin(), sorted.end());
  size_t room = width > gaps ? width - gaps : 0, most = kTightest;
  for (size_t i = 0; i < columns; ++i) {
    most = std::max(kTightest, room / (columns - i));
    if (sorted[i] > most) break;
    room -= std::min(room, sorted[i]);
  }
  for (size_t& own : widths) own = std::min(own, most);
  return widths;
}

TextTable TextTable::turned() const {
  std::vector<std::string> header = {header_[0]};
  std::vector<Align> align = {Align::left};
  for (const auto& row : rows_) {
    header.push_back(row[0]);
    align.push_back(this->align(1));
  }
  TextTable table(std::move(header), std::move(align));
  for (size_t c = 1; c < header_.size(); ++c) {
    std::vector<std::string> cells = {header_[c]};
    for (const auto& row : rows_) cells.push_back(row[c]);
    table.add_row(std::move(cells));
  }
  return table;
}

std::string TextTable::text(size_t width) const {
  const size_t columns = header_.size();
  bool tight = false;
  const std::vector<size_t> widths = this->widths(width, tight);
  bool cuts_header = false;
  for (size_t c = 0; c < columns; ++c) cuts_header = cuts_header || (tight && longest_word(header_[c]) > widths[c]);
  if (cuts_header) {
    const TextTable table = turned();
    bool tight_too = false;
    table.widths(width, tight_too);
    if (!tight_too) return table.text(width);
  }
  std::string out;
  auto write = [&](const std::vector<std::string>& cells) {
    std::vector<std::vector<std::string>> lines(columns);
    size_t count = 1;
    for (size_t c = 0; c < columns; ++c) {
      const bool breaks = tight || (c + 1 == columns && width > 0);
      lines[c] = wrap_words(cells[c], breaks ? widths[c] : 0);
      if (tight) lines[c] = cut_words(lines[c], widths[c]);
      count = std::max(count, lines[c].size());
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t c = 0; c < columns; ++c) {
        out += pad(i < lines[c].size() ? lines[c][i] : "", widths[c], align(c));
        if (c + 1 < columns) out += std::string(kGap, ' ');
      }
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
