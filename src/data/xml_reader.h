#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>

struct XML_ParserStruct;

namespace mnemo::data {

using XmlAttributes = std::map<std::string, std::string>;

/// Calls handlers for the elements and the characters of an XML file. An exception of a handler ends the reading.
/// Throws InputError with file and line for XML that is broken, declares a document type, or is nested too deep.
class XmlReader {
 public:
  virtual ~XmlReader() = default;
  /// A file, which may be packed: see open_text().
  void read(const std::string& path);
  /// `path` is for messages.
  void read_text(std::string_view text, const std::string& path);

 protected:
  virtual void starts(std::string_view name, const XmlAttributes& attributes) = 0;
  virtual void ends(std::string_view /*name*/) {}
  virtual void characters(std::string_view /*text*/) {}
  uint64_t line() const;
  /// "FILE:LINE".
  std::string where() const;

 private:
  template <class F>
  void guarded(F&& f);
  /// Runs `feed`, which calls parse() for each chunk.
  template <class F>
  void with_parser(const std::string& path, F&& feed);
  void enters();
  void parse(std::string_view chunk, bool last);
  static XmlReader& of(void* self) { return *static_cast<XmlReader*>(self); }

  std::string path_;
  XML_ParserStruct* parser_ = nullptr;
  int depth_ = 0;  // elements that are open
  std::exception_ptr thrown_;
};

}  // namespace mnemo::data
