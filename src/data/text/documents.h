#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mnemo::data {

/// Where one document of a text ends and the next starts. Nothing is taken out of the text: a separator line stays the
/// end of the document before it, a heading the start of the one after.
///   none        the whole text is one
///   blank_line  at the first line with content after one or more blank lines
///   heading     at a line " = Title = " between blank lines (WikiText's articles: 600 in WikiText-2's training text;
///               " = = Section = = " is none, nor is a line of a table that is cut at its equals signs)
///   line        at the first line with content after a line that equals `line` (blanks around it do not count)
/// Every document but the last has content: blank lines at the front belong to the document that follows.
struct DocumentRule {
  enum class Kind { none, blank_line, heading, line };
  Kind kind = Kind::none;
  std::string line;

  /// From the names above. Throws InputError for another name, or for "line" without one.
  static DocumentRule parse(std::string_view name, std::string_view line);
};

/// Whether a line has the form of a top-level WikiText heading.
bool is_heading(std::string_view line);

/// Cuts a text that comes in chunks at its documents' starts.
class DocumentSplitter {
 public:
  /// Called with consecutive parts of the text; `starts` is true where the part begins a new document. The first
  /// document of the text is not announced.
  using Use = std::function<void(std::string_view part, bool starts)>;

  /// With `has_content` the text goes on inside a document, as after a cut.
  DocumentSplitter(DocumentRule rule, Use use, bool has_content = false);

  void put(std::string_view chunk);
  void finish();

 private:
  bool starts_document(std::string_view line, bool heading);
  void split(bool at_end);

  DocumentRule rule_;
  Use use_;
  bool has_content_;          // the current document has a line that is neither blank nor a separator
  bool separated_ = false;    // a separator was seen since that line
  bool after_blank_;          // the line before was blank, or there was none
  bool inside_line_ = false;  // the text so far ends inside a line that was already handed on
  std::string pending_;       // text not yet handed on
};

}  // namespace mnemo::data
