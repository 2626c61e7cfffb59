#include "distributed/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::distributed {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kDefaultPort = 29500;  // as PyTorch's

/// Reads numbers among the variables of a launcher.
class Reader {
 public:
  explicit Reader(const Lookup& variables) : variables_(variables) {}

  bool has(const char* name) const { return variables_(name).has_value(); }
  std::string text(const char* name, const std::string& otherwise = {}) const {
    return variables_(name).value_or(otherwise);
  }
  int64_t number(const char* name, int64_t low, int64_t high) const {
    const std::optional<std::string> value = variables_(name);
    base::require(value.has_value(), "{} is not set, although this process was started as one rank of several", name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    base::require(error == std::errc() && end == value->data() + value->size() && number >= low && number <= high,
                  "{}: expected a number from {} to {}, found '{}'", name, low, high, base::printable(*value));
    return number;
  }
  int64_t number(const char* name, int64_t low, int64_t high, int64_t otherwise) const {
    return has(name) ? number(name, low, high) : otherwise;
  }

 private:
  const Lookup& variables_;
};

Place ranks(const Reader& read, Launcher launcher, const char* rank, const char* size, const char* local_rank,
            const char* local_size) {
  Place place;
  place.launcher = launcher;
  place.size = read.number(size, 1, kMaxRanks);
  place.rank = read.number(rank, 0, place.size - 1);
  place.local_size = read.number(local_size, 1, place.size, place.size);
  place.local_rank = read.number(local_rank, 0, place.local_size - 1, place.rank % place.local_size);
  return place;
}

/// Ranks that are not told how many of them run on this machine would meet on it alone.
void require_counted(const Reader& read, const char* local_size, const Place& place) {
  const bool here = place.address.starts_with("127.") || place.address == "localhost" || place.address == "::1";
  base::require(place.size == 1 || here || read.has(local_size),
                "{} is not set, and the ranks meet at {}: expected the number of ranks on this machine", local_size,
                base::printable(place.address));
}

/// The default place where ranks meet: MASTER_ADDR and MASTER_PORT, or these.
void meet(const Reader& read, Place& place, const std::string& address, int64_t port) {
  place.address = read.text("MASTER_ADDR", address);
  base::require(!place.address.empty(),
                "MASTER_ADDR is not set: the ranks run on several machines; expected the address of rank 0's");
  place.port = static_cast<uint16_t>(read.number("MASTER_PORT", 1, 65535, port));
}

/// Tasks on each machine, of "4(x2),3": the number on the first, which is all that one machine needs.
int64_t tasks_of_first(const std::string& list, int64_t size) {
  int64_t tasks = 0;
  std::from_chars(list.data(), list.data() + list.size(), tasks);
  return tasks > 0 && tasks <= size ? tasks : size;
}

}  // namespace

std::optional<std::string> environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::string first_machine(const std::string& nodes) {
  const size_t end = nodes.find_first_of(",[");
  const std::string prefix = nodes.substr(0, end);
  if (end == std::string::npos || nodes[end] == ',') return prefix;
  const size_t close = nodes.find(']', end);
  const std::string inside = nodes.substr(end + 1, close == std::string::npos ? close : close - end - 1);
  const std::string suffix = close == std::string::npos
                                 ? ""
                                 : nodes.substr(close + 1, nodes.find_first_of(",[", close + 1) - close - 1);
  return prefix + inside.substr(0, inside.find_first_of(",-")) + suffix;
}

std::optional<Place> place_from(const Lookup& variables) {
  const Reader read(variables);
  if (read.has("RANK") && read.has("WORLD_SIZE")) {
    Place place = ranks(read, Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
    if (read.has("MNEMO_PROCESSES")) place.launcher = Launcher::processes;
    place.address = read.text("MASTER_ADDR");
    base::require(!place.address.empty() || place.size == 1,
                  "MASTER_ADDR is not set, although RANK and WORLD_SIZE are");
    require_counted(read, "LOCAL_WORLD_SIZE", place);
    if (place.size > 1 || place.launcher == Launcher::processes)
      place.port = static_cast<uint16_t>(read.number("MASTER_PORT", 1, 65535));
    place.hosted = read.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    place.restarts = read.number("TORCHELASTIC_RESTART_COUNT", 0, INT64_MAX, 0);
    place.job = fmt::format("{}/{}", read.text("TORCHELASTIC_RUN_ID", "none"), place.restarts);
    return place;
  }
  if (read.has("OMPI_COMM_WORLD_SIZE")) {
    Place place = ranks(read, Launcher::openmpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
    if (place.size == 1) return std::nullopt;
    meet(read, place, place.one_machine() ? "127.0.0.1" : "", kDefaultPort);
    return place;
  }
  // srun sets both for a step. A batch script has SLURM_PROCID too, but is not a rank.
  if (read.has("SLURM_PROCID") && read.has("SLURM_STEP_NUM_TASKS")) {
    Place place = ranks(read, Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "");
    if (place.size == 1) return std::nullopt;
    const int64_t nodes = read.number("SLURM_STEP_NUM_NODES", 1, kMaxRanks, 1);
    place.local_size = nodes == 1 ? place.size
                                  : tasks_of_first(read.text("SLURM_STEP_TASKS_PER_NODE"), place.size / nodes);
    place.local_rank = read.number("SLURM_LOCALID", 0, place.size - 1);
    const int64_t job = read.number("SLURM_JOB_ID", 0, INT64_MAX, 0);
    meet(read, place, nodes == 1 ? "127.0.0.1" : first_machine(read.text("SLURM_STEP_NODELIST")), 15000 + job % 15000);
    place.job = fmt::format("{}.{}", job, read.text("SLURM_STEP_ID", "0"));
    return place;
  }
  if (read.has("PMI_SIZE")) {
    Place place = ranks(read, Launcher::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
    if (place.size == 1) return std::nullopt;
    meet(read, place, place.one_machine() ? "127.0.0.1" : "", kDefaultPort);
    require_counted(read, "MPI_LOCALNRANKS", place);
    return place;
  }
  return std::nullopt;
}

}  // namespace mnemo::distributed
