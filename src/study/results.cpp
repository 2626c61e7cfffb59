#include "study/results.h"

#include "base/file_io.h"
#include "base/node.h"

namespace mnemo::study {

RunResult read_result(const std::string& path) {
  constexpr base::ReadLimits kLimits{.max_bytes = size_t{64} << 20, .max_depth = 16, .max_values = 4'000'000};
  return base::read_options<RunResult>(base::parse_json(base::read_file(path, kLimits.max_bytes), path, kLimits));
}

void write_result(const std::string& path, const RunResult& result) {
  base::write_file_atomic(path, base::to_json(base::write_options(result), 1) + "\n");
}

}  // namespace mnemo::study
