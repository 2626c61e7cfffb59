#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/node.h"

namespace mnemo::page {

/// Size limit of a page in bytes; parts beyond it are left out with a note.
constexpr size_t kMaxPageBytes = size_t{32} << 20;

/// An HTML page in one file. It loads nothing (a content security policy forbids it), follows the light or dark scheme
/// of the reader's system, and fits a narrow screen. Its script makes tables sortable, offers every table as CSV and
/// every figure as SVG and PNG, and adds copy buttons to commands and listings.
class Document {
 public:
  explicit Document(std::string title) : title_(std::move(title)) {}

  /// Adds HTML to the body; a note names `what` ("the curves of study A") if the page becomes too large.
  void add(std::string_view html, std::string_view what);
  /// Adds JSON for a script, which finds it by the id. Returns false, and adds a note, if the page becomes too large.
  bool add_data(std::string_view id, const base::Node& data, std::string_view what);
  /// Adds an embedded script to the end of the page, once.
  void use(std::string_view script);

  std::string html() const;
  size_t size() const { return body_.size() + data_.size(); }

 private:
  std::string title_, body_, data_;
  std::vector<std::string> scripts_;
};

/// The picture as a data URL in an <img>: scripts inside it cannot run, wherever it came from.
std::string picture(std::string_view svg, std::string_view about);
/// A figure with its caption, which page.js makes downloadable under `name`. `content` is HTML, `caption` is text.
std::string figure(std::string_view content, std::string_view caption, std::string_view name);
/// A name as a title begins: "Bits per byte".
std::string capitalised(std::string name);
/// A command or text with a button that copies it.
std::string listing(std::string_view text);

}  // namespace mnemo::page
