#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace mnemo::distributed {

/// Tells a rank the id of the process that started it.
inline constexpr const char* kLauncherVariable = "MNEMO_LAUNCHER";

struct SpawnOptions {
  int64_t processes = 2;
  /// The file that a rank other than 0 writes to, for messages.
  std::function<std::string(int64_t rank)> log = {};
  std::function<int()> signals = {};  ///< how many this process was sent; each is passed on
  std::function<int()> last_signal = {};
};

/// Runs this program again with its own arguments, once for each rank, with the variables of torchrun and a store of
/// this process, and waits. When a rank fails the others are told, and killed if they
/// are still there a few seconds later. When rank 0 ends with 0 (its work is done, or its output has no reader any
/// more), those that are still there two seconds later are ended quietly. Returns the exit status: 0; that of rank 0
/// where it ended by itself; 1 where a rank was killed; 143 or 130 after a signal that was passed on. Throws
/// InputError where the program cannot be started.
int run_processes(const SpawnOptions& options);

}  // namespace mnemo::distributed
