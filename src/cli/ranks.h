#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "core/model.h"
#include "distributed/group.h"

namespace mnemo::cli {

/// Options of a command line for several processes.
struct Ranks {
  std::string command;                    ///< for messages
  std::optional<int64_t> processes = {};  ///< --processes
  std::optional<int64_t> timeout = {};    ///< --rank-timeout, seconds; unset: 600
};

/// Adds --processes, with its help text `about`, and --rank-timeout.
void add_ranks(Command& command, Ranks& ranks, const std::string& about);

/// Prepares ranks to share the work of a command other than training: divides the threads of their machine, and refuses
/// ranks with another program, command line or model. Does nothing for one process.
void begin_sharing(const std::shared_ptr<distributed::Group>& group, const std::string& command,
                   const core::Model& model);

/// Runs `work` as the command line and the launcher's variables ask for:
///   alone, with no group;
///   with --processes N: starts N ranks of this program and returns their exit status;
///   as one rank of several: joins the others. Ranks other than 0 write stdout and stderr to FOLDER/rank-N.log; without
///   a folder their errors stay on stderr and the rest is dropped.
/// If a rank throws, the others are notified before it rethrows.
int on_ranks(const Ranks& ranks, const std::string& folder,
             const std::function<int(const std::shared_ptr<distributed::Group>& group)>& work);

}  // namespace mnemo::cli
