#include "bundle/published_config.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"

namespace mnemo::bundle {

PublishedConfig read_published(const std::string& folder, const char* file) {
  PublishedConfig found;
  const std::string path = base::join_path(folder, file);
  if (!base::path_exists(path)) return found;
  found.config = weights::parse_model_config(base::read_file(path, uint64_t{16} << 20), path, weights_bytes(folder));
  found.format = weights::foreign_format_of(found.config);
  return found;
}

PublishedConfig find_published(const std::string& folder) {
  PublishedConfig found = read_published(folder);
  return found.format != nullptr ? found : read_published(folder, kSourceConfig);
}

std::string said_by(const PublishedConfig& found, const std::string& folder, const char* file,
                    const std::function<std::string(const PublishedConfig&)>& make) {
  if (found.format == nullptr) return {};
  try {
    return make(found);
  } catch (const base::InputError& error) {
    base::log_warning("{}: without {}: {}", base::printable(folder, 400), file, error.what());
  }
  return {};
}

}  // namespace mnemo::bundle
