#include "tasks/task.h"

#include <algorithm>

#include "base/error.h"

namespace mnemo::tasks {

double Evaluation::at(std::string_view name) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const auto& metric) { return metric.first == name; });
  base::ensure(found != metrics.end(), "an evaluation has no metric '{}'", name);
  return found->second;
}

}  // namespace mnemo::tasks
