#pragma once

#include <cstdint>
#include <string>

namespace mnemo::base {

/// The value of the first line "key : value" in a /proc file; empty if there is none.
std::string proc_value(const char* path, const std::string& key);

/// This machine's processor, and those of its features that kernels use: "avx2 f16c fma".
std::string processor_name();
std::string processor_features();

/// Cores available to this process.
int64_t usable_cores();

/// Bytes of this machine's memory.
int64_t machine_memory();

}  // namespace mnemo::base
