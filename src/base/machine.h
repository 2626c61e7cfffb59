#pragma once

#include <cstdint>
#include <string>

#include "base/node.h"

namespace mnemo::base {

/// The machine that a number was measured on.
struct Machine {
  std::string cpu;         ///< the processor's own name
  std::string capability;  ///< instructions that LibTorch uses: "AVX2", "AVX512"
  std::string features;    ///< of the processor: "avx2 f16c fma"
  int64_t cores = 0;       ///< that this process may use
  int64_t memory = 0;      ///< bytes
  std::string system;      ///< "Linux 6.1.0 x86_64"
  std::string libtorch;
  std::string mnemo;
};

Machine this_machine();
base::Node to_node(const Machine& machine);

/// Cores that this process may use.
int64_t usable_cores();

/// Bytes of memory that this process may use: the machine's, or fewer where its control group is held to fewer.
int64_t usable_memory();

/// Most memory this process has had at once, in bytes, LibTorch's own code included.
int64_t peak_memory();

}  // namespace mnemo::base
