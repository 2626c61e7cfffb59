#include "data/tokenizers/utf8_error.h"

#include "base/error.h"
#include "base/utf8.h"

namespace mnemo::data {

void invalid_utf8(std::string_view where, int64_t offset, std::string_view rest) {
  if (rest.empty() || base::front_character(rest).length == 0) {
    base::input_error(
        "{}: invalid UTF-8 at byte {}: the text ends inside a character; use unit = \"bytes\" for arbitrary files",
        where, offset);
  }
  base::input_error("{}: invalid UTF-8 at byte {}: found 0x{:02X}; use unit = \"bytes\" for arbitrary files", where,
                    offset, static_cast<unsigned char>(rest.front()));
}

}  // namespace mnemo::data
