#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/process.h"
#include "base/processor.h"

namespace mnemo::cli {

/// Parts of `mnemo --version` that come from LibTorch or the build.
struct VersionFacts {
  std::string mnemo, libtorch, cuda;
  std::string capability;  ///< instruction set that LibTorch uses
  int64_t threads = 0;
  std::string tiles = {};  ///< ", tiles used" or ", tiles not used" on a processor with AMX
};

inline std::string version_text(const VersionFacts& facts) {
  char memory[32];
  std::snprintf(memory, sizeof(memory), "%.1f", static_cast<double>(base::machine_memory()) / 1e9);
  return "mnemo " + facts.mnemo + "\nLibTorch " + facts.libtorch + ", CPU code for " + facts.capability + "; " +
         facts.cuda + "\n" + base::processor_name() + ", " + std::to_string(base::usable_cores()) + " cores, " +
         memory + " GB (" + base::processor_features() + facts.tiles + ")\n" + base::describe_process_settings() +
         ", " + std::to_string(facts.threads) + " threads\n";
}

}  // namespace mnemo::cli
