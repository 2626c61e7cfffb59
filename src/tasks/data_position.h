#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace mnemo::tasks {

/// The number that Task::save() wrote under that name; `find` as in Task::load(). Throws InputError unless it is int64
/// [1].
int64_t saved_number(const std::function<at::Tensor(const std::string&)>& find, const char* name);

/// The batch that next() goes on with, "next_batch". Throws InputError where it is less than 0.
int64_t saved_next_batch(const std::function<at::Tensor(const std::string&)>& find);

}  // namespace mnemo::tasks
