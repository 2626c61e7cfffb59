#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mnemo::data {

/// The rule that separates documents. Nothing is removed from the text: a separator line belongs to the document before
/// it, a heading to the document after it.
///   none        the whole text is one document
///   blank_line  at the first line with content after one or more blank lines
///   heading     at a line " = Title = " between blank lines (WikiText's articles: 600 in WikiText-2's training text;
///               " = = Section = = " does not count, nor does a line of a table that is cut at its equals signs)
///   line        at the first line with content after a line that equals `line` (ignoring surrounding blanks)
/// Every document except the last has content: leading blank lines belong to the following document.
struct DocumentRule {
  enum class Kind { none, blank_line, heading, line };
  Kind kind = Kind::none;
  std::string line;

  /// Throws InputError for Kind::line without a line.
  static DocumentRule of(Kind kind, std::string_view line);
  /// Parses one of the names above. Throws InputError for another name.
  static DocumentRule parse(std::string_view name, std::string_view line);
};

/// Whether a text has a line that ends a document by a rule of Kind::line.
bool has_separator(std::string_view text, const DocumentRule& rule);

/// Whether a line has the form of a top-level WikiText heading.
bool is_heading(std::string_view line);

/// Splits a text that is read in chunks at the starts of its documents.
class DocumentSplitter {
 public:
  /// Called with consecutive parts of the text; `starts` is true if the part begins a new document. It is not set for
  /// the first document of the text.
  using Use = std::function<void(std::string_view part, bool starts)>;

  DocumentSplitter(DocumentRule rule, Use use);

  void put(std::string_view chunk);
  void finish();

 private:
  bool starts_document(std::string_view line, bool heading);
  void split(bool at_end);

  DocumentRule rule_;
  Use use_;
  bool has_content_ = false;  // the current document has a line that is neither blank nor a separator
  bool separated_ = false;    // a separator was seen since that line
  bool after_blank_ = true;   // the line before was blank, or there was none
  bool inside_line_ = false;  // the text so far ends inside a line that was already passed on
  std::string pending_;       // text not yet passed on
};

}  // namespace mnemo::data
