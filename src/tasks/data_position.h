#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace mnemo::tasks {

/// Reads the number that Task::save() stored under that name; `find` as in Task::load(). Throws InputError unless it is
/// int64 [1].
int64_t saved_number(const std::function<at::Tensor(const std::string&)>& find, const char* name);

/// The batch at which next() continues, "next_batch". Throws InputError if it is negative.
int64_t saved_next_batch(const std::function<at::Tensor(const std::string&)>& find);

}  // namespace mnemo::tasks
