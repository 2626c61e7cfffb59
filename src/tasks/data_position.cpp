#include "tasks/data_position.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::tasks {

int64_t saved_number(const std::function<at::Tensor(const std::string&)>& find, const char* name) {
  const at::Tensor saved = find(name);
  base::require(saved.defined() && saved.scalar_type() == at::kLong && saved.numel() == 1,
                "data position: expected \"{}\" int64 [1]", name);
  return saved.item<int64_t>();
}

int64_t saved_next_batch(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t next_batch = saved_number(find, "next_batch");
  base::require(next_batch >= 0, "data position: \"next_batch\": expected 0 or more, found {}", next_batch);
  return next_batch;
}

}  // namespace mnemo::tasks
