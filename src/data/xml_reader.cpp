#include "data/xml_reader.h"

#include <expat.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/text/text_files.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

constexpr int kMaxElements = 256;  // inside one another; the parser keeps every open one
constexpr size_t kXmlChunk = size_t{1} << 20;

// Expat 2.9 has new names for numbers of 64 bits and deprecates the old ones.
#if XML_MAJOR_VERSION > 2 || XML_MINOR_VERSION >= 9
uint64_t line_of(XML_Parser parser) { return XML_GetCurrentLineNumber64(parser); }
uint64_t column_of(XML_Parser parser) { return XML_GetCurrentColumnNumber64(parser); }
#else
uint64_t line_of(XML_Parser parser) { return XML_GetCurrentLineNumber(parser); }
uint64_t column_of(XML_Parser parser) { return XML_GetCurrentColumnNumber(parser); }
#endif

}  // namespace

uint64_t XmlReader::line() const { return line_of(parser_); }
std::string XmlReader::where() const { return fmt::format("{}:{}", path_, line()); }

/// Exceptions must not pass through the parser, which is C.
template <class F>
void XmlReader::guarded(F&& f) {
  if (thrown_) return;
  try {
    f();
  } catch (...) {
    thrown_ = std::current_exception();
    XML_StopParser(parser_, XML_FALSE);
  }
}

template <class F>
void XmlReader::with_parser(const std::string& path, F&& feed) {
  path_ = path;
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(XML_ParserCreate(nullptr), &XML_ParserFree);
  base::ensure(parser != nullptr, "no memory for a parser of XML");
  parser_ = parser.get();
  XML_SetUserData(parser_, this);
  XML_SetElementHandler(
      parser_,
      [](void* self, const char* name, const char** attributes) {
        of(self).guarded([&] {
          of(self).enters();
          XmlAttributes found;
          for (; *attributes != nullptr; attributes += 2) found[attributes[0]] = attributes[1];
          of(self).starts(name, found);
        });
      },
      [](void* self, const char* name) {
        of(self).guarded([&] {
          --of(self).depth_;
          of(self).ends(name);
        });
      });
  XML_SetCharacterDataHandler(parser_, [](void* self, const char* text, int length) {
    of(self).guarded([&] { of(self).characters({text, static_cast<size_t>(length)}); });
  });
  XML_SetStartDoctypeDeclHandler(parser_, [](void* self, const char*, const char*, const char*, int) {
    of(self).guarded(
        [&] { base::input_error("{}: expected XML without a document type, found <!DOCTYPE", of(self).where()); });
  });
  feed();
  parse({}, true);
}

void XmlReader::read(const std::string& path) {
  with_parser(path, [&] {
    for (const std::string& file : text_files(path))
      unpack(file, packing_of(file), [&](std::string_view piece) { parse(piece, false); });
  });
}

void XmlReader::read_text(std::string_view text, const std::string& path) {
  with_parser(path, [&] {
    for (size_t at = 0; at < text.size(); at += kXmlChunk) parse(text.substr(at, kXmlChunk), false);
  });
}

void XmlReader::enters() {
  base::require(++depth_ <= kMaxElements, "{}: expected elements at most {} deep, found one inside {} others", where(),
                kMaxElements, kMaxElements);
}

void XmlReader::parse(std::string_view chunk, bool last) {
  const XML_Status status = XML_Parse(parser_, chunk.data(), static_cast<int>(chunk.size()), last ? 1 : 0);
  if (thrown_) std::rethrow_exception(thrown_);
  base::require(status != XML_STATUS_ERROR, "{}:{}: broken XML: {}", where(), column_of(parser_) + 1,
                XML_ErrorString(XML_GetErrorCode(parser_)));
}

}  // namespace mnemo::data
