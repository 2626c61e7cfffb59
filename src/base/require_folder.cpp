#include "base/require_folder.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"

namespace mnemo::base {

void require_folder(const std::string& path, std::string_view expected, std::string_view more) {
  if (is_folder(path)) return;
  const std::string shown = printable(path, 400);
  require(path_exists(path), "{}: no such folder{}", shown, more);
  input_error("{}: expected {}, found a file", shown, expected);
}

}  // namespace mnemo::base
