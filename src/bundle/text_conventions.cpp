#include "bundle/text_conventions.h"

#include "base/file_io.h"

namespace mnemo::bundle {

TextConventions TextConventions::read(const std::string& folder) {
  const std::string path = base::join_path(folder, kFile);
  if (!base::path_exists(path)) return {};
  return base::read_options<TextConventions>(base::parse_json(base::read_file(path, uint64_t{1} << 20), path));
}

std::string TextConventions::text() const { return base::to_json(base::write_options(*this)) + "\n"; }

}  // namespace mnemo::bundle
