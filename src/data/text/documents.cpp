#include "data/text/documents.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/printable.h"

namespace mnemo::data {
namespace {

// A longer line counts as content; it is passed on in parts, so that a file without line ends is not held in memory.
constexpr size_t kLongestLine = size_t{1} << 16;

std::string_view trim(std::string_view line) { return base::trimmed(line, " \t\r\v\f\n"); }

}  // namespace

DocumentRule DocumentRule::of(Kind kind, std::string_view line) {
  if (kind != Kind::line) return {kind, {}};
  const std::string_view text = trim(line);
  base::require(
      !text.empty() && text.size() < kLongestLine && text.find('\n') == std::string_view::npos,
      "separator_line: expected the one line that ends a document (document_separator = \"line\"), found \"{}\"",
      base::printable(line));
  return {Kind::line, std::string(text)};
}

DocumentRule DocumentRule::parse(std::string_view name, std::string_view line) {
  if (name == "none") return of(Kind::none, line);
  if (name == "blank_line") return of(Kind::blank_line, line);
  if (name == "heading") return of(Kind::heading, line);
  base::require(name == "line",
                "document_separator: expected \"none\", \"blank_line\", \"heading\" or \"line\", found \"{}\"",
                base::printable(name, 40));
  return of(Kind::line, line);
}

bool has_separator(std::string_view text, const DocumentRule& rule) {
  for (size_t end = 0; !text.empty(); text.remove_prefix(end)) {
    end = std::min(text.find('\n'), text.size() - 1) + 1;
    if (trim(text.substr(0, end)) == rule.line) return true;
  }
  return false;
}

bool is_heading(std::string_view line) {
  const std::string_view text = trim(line);
  return text.size() >= 5 && text.starts_with("= ") && text.ends_with(" =") && !text.starts_with("= =");
}

DocumentSplitter::DocumentSplitter(DocumentRule rule, Use use) : rule_(std::move(rule)), use_(std::move(use)) {}

void DocumentSplitter::put(std::string_view chunk) {
  if (rule_.kind == DocumentRule::Kind::none) {
    if (!chunk.empty()) use_(chunk, false);
    return;
  }
  pending_ += chunk;
  split(false);
}

void DocumentSplitter::finish() { split(true); }

bool DocumentSplitter::starts_document(std::string_view line, bool heading) {
  const std::string_view text = line.size() > kLongestLine ? line : trim(line);
  after_blank_ = text.empty();
  if (text.empty()) {
    separated_ = separated_ || (rule_.kind == DocumentRule::Kind::blank_line && has_content_);
    return false;
  }
  if (rule_.kind == DocumentRule::Kind::line && text == rule_.line) {
    separated_ = has_content_;
    return false;
  }
  const bool starts = has_content_ && (separated_ || heading);
  has_content_ = true;
  separated_ = false;
  return starts;
}

void DocumentSplitter::split(bool at_end) {
  const std::string_view text = pending_;
  size_t part = 0;  // start of the text not yet passed on
  bool part_starts = false;
  const auto hand_on = [&](size_t end) {
    if (end > part) use_(text.substr(part, end - part), part_starts);
    part = end;
  };
  // The line at `begin` as far as it has been read, including its end, and whether all that matters has been read.
  const auto line_at = [&](size_t begin) {
    const size_t newline = text.find('\n', begin);
    const std::string_view line = text.substr(begin, newline == std::string_view::npos ? newline : newline + 1 - begin);
    return std::pair(line, at_end || newline != std::string_view::npos || line.size() > kLongestLine);
  };
  size_t at = 0;
  while (at < text.size()) {
    const auto [line, known] = line_at(at);
    if (!inside_line_) {
      if (!known) break;
      bool heading = rule_.kind == DocumentRule::Kind::heading && after_blank_ && line.size() <= kLongestLine &&
                     is_heading(line);
      if (heading) {
        const auto [next, next_known] = line_at(at + line.size());
        if (!next_known) break;
        heading = next.size() <= kLongestLine && trim(next).empty();
      }
      if (starts_document(line, heading)) {
        hand_on(at);
        part_starts = true;
      }
    }
    inside_line_ = line.back() != '\n';
    at += line.size();
  }
  hand_on(at);
  pending_.erase(0, at);
}

}  // namespace mnemo::data
