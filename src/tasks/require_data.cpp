#include "tasks/require_data.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "data/text/text_files.h"

namespace mnemo::tasks {

void require_data(const base::Node& table) {
  const base::Node* train = table.find("train");
  if (train == nullptr || !train->is_string() || train->as_string().empty()) return;
  const std::string& path = train->as_string();
  base::require(base::path_exists(path) || data::is_pattern(path),
                "data.train: {}: no such file or folder; use --set data.train=PATH, or train's --data PATH",
                base::printable(path, 400));
}

}  // namespace mnemo::tasks
