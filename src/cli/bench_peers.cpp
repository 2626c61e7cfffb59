#include "cli/bench_peers.h"

#include <ATen/Parallel.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace mnemo::cli {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for the tensors that the peers read, removed with it.
class HandOver {
 public:
  HandOver() {
    std::string pattern = (fs::temp_directory_path() / "mnemo-bench-XXXXXX").string();
    base::require(::mkdtemp(pattern.data()) != nullptr, "{}: cannot be made: {}", pattern, std::strerror(errno));
    folder_ = pattern;
  }
  ~HandOver() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
  std::string file() const { return (folder_ / "tensors.safetensors").string(); }

 private:
  fs::path folder_;
};

}  // namespace

BenchPeers start_peers(const std::string& peers, const std::string& python, const BenchCase& bench_case, const BenchSubject& subject) {
  const fs::path folder = fs::absolute(peers).lexically_normal(), root = folder.parent_path().parent_path();
  const fs::path installed = root / ".deps" / "peers";
  base::require(fs::exists(folder / "peer.py"), "{}: expected peer.py there; name the folder with --peers, or use --no-peers",
                folder.string());
  base::require(fs::exists(installed / "settings.so") && fs::exists(installed / "safetensors"),
                "{}: the peers are not set up; run benchmarks/setup, or use --no-peers", installed.string());
  const HandOver hand_over;
  weights::write_safetensors(hand_over.file(), subject.tensors());
  const int threads = at::get_num_threads();
  std::vector<std::string> command = {python, (folder / "peer.py").string(), base::to_json(bench_case.as_node(threads), 0),
                                      hand_over.file()};
  std::vector<std::pair<std::string, std::string>> environment = {{"PYTHONPATH", installed.string()},
                                                                  {"OMP_NUM_THREADS", std::to_string(threads)}};
  BenchPeers started;
  started.stock = std::make_unique<PeerProcess>(command, environment);
  command.push_back("--fused");
  environment.emplace_back("LD_PRELOAD", (installed / "settings.so").string());
  started.best = std::make_unique<PeerProcess>(command, environment);
  return started;
}

std::vector<std::string> differences(const BenchPeers& peers, const BenchCase& bench_case, const BenchSubject& subject) {
  const BenchFigures ours = subject.figures();
  std::vector<std::string> found;
  auto compare = [&](const char* name, PeerProcess& peer) {
    const std::string answer = peer.ask("check");
    const std::string line = disagreement(ours, read_figures(answer, "the peer's answer"));
    if (!line.empty()) found.push_back(fmt::format("{}, {}: {}", bench_case.name, name, line));
  };
  compare("stock", *peers.stock);
  compare("best", *peers.best);
  return found;
}

}  // namespace mnemo::cli
