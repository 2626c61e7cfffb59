#include "text/utf8_error.h"

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace mnemo::text {

void invalid_utf8(std::string_view where, int64_t offset, std::string_view rest, std::string_view advice) {
  if (rest.empty() || base::front_character(rest).length == 0)
    base::input_error("{}: invalid UTF-8 at byte {}: the text ends inside a character; {}", where, offset, advice);
  base::input_error("{}: invalid UTF-8 at byte {}: found 0x{:02X}; {}", where, offset,
                    static_cast<unsigned char>(rest.front()), advice);
}

void require_utf8(std::string_view where, std::string_view text) {
  if (const auto bad = base::first_invalid_utf8(text))
    invalid_utf8(where, static_cast<int64_t>(*bad), text.substr(*bad), kConvertFile);
}

}  // namespace mnemo::text
