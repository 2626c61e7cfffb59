#pragma once

#include <cstdint>
#include <string>

#include "base/node.h"
#include "base/processor.h"

namespace mnemo::base {

/// The machine on which a measurement was made.
struct Machine {
  std::string cpu;         ///< processor name
  std::string capability;  ///< instruction set used by LibTorch: "AVX2", "AVX512"
  std::string features;    ///< processor features: "avx2 f16c fma"
  int64_t cores = 0;       ///< available to this process
  int64_t memory = 0;      ///< bytes
  std::string system;      ///< "Linux 6.1.0 x86_64"
  std::string libtorch;
  std::string mnemo;
};

Machine this_machine();
base::Node to_node(const Machine& machine);

/// This machine's name, for messages.
std::string host_name();

/// Memory available to this process in bytes: that of the machine, or the limit of its control group if that is lower.
int64_t usable_memory();

/// Lets this process have `wanted` files and connections open at once, or as many as the system grants without rights
/// (the hard limit); how many it may have now. Many systems start programs with 1024 of a far higher limit.
int64_t allow_open_files(int64_t wanted);

/// Peak memory of this process in bytes, including LibTorch's code.
int64_t peak_memory();

/// Bytes of this process that are in memory now.
int64_t resident_memory();

}  // namespace mnemo::base
