#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace mnemo::distributed {

/// The launcher that started this process as one rank of several.
enum class Launcher { processes, torchrun, slurm, openmpi, pmi };

/// The place of this process among those of one job.
struct Place {
  Launcher launcher = Launcher::torchrun;
  int64_t rank = 0, size = 1;
  int64_t local_rank = 0, local_size = 1;  ///< among the ranks of this machine
  std::string address = "127.0.0.1";       ///< of the store where the ranks meet
  uint16_t port = 0;
  bool hosted = false;   ///< the launcher runs the store; otherwise rank 0 does
  int64_t restarts = 0;  ///< how often the launcher has started the job again
  std::string job = {};  ///< keeps the keys of this attempt apart from those of an earlier one on the same store

  /// Whether all ranks run on this machine.
  bool one_machine() const { return local_size == size; }
};

using Lookup = std::function<std::optional<std::string>(const std::string& variable)>;
/// A variable of this process's environment.
std::optional<std::string> environment(const std::string& variable);

/// The place that a launcher's variables give, nothing where no launcher has started this process (or as the only task
/// of a Slurm or MPI job):
///   torchrun  RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_*
///   OpenMPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
///   Slurm     SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE, SLURM_STEP_NODELIST
///   PMI       PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS
/// MASTER_ADDR and MASTER_PORT win over what the last three give. Throws InputError that names the variable for a value
/// that is missing or no number in range.
std::optional<Place> place_from(const Lookup& variables = environment);

/// The first name of a list of machines as Slurm writes it: "node[03-05,7],x" gives "node03".
std::string first_machine(const std::string& nodes);

}  // namespace mnemo::distributed
