#include "bench/peers.h"

#include <ATen/Parallel.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace mnemo::bench {

namespace fs = std::filesystem;

HandOver::HandOver() {
  std::string pattern = (fs::temp_directory_path() / "mnemo-bench-XXXXXX").string();
  base::require(::mkdtemp(pattern.data()) != nullptr, "{}: cannot be made: {}", pattern, std::strerror(errno));
  folder_ = pattern;
}

HandOver::~HandOver() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

namespace {

fs::path folder_of(const BenchArguments& arguments, const std::string& script) {
  const fs::path folder = fs::absolute(arguments.peers).lexically_normal();
  base::require(fs::exists(folder / script), "{}: expected {} there; name the folder with --peers, or use --no-peers",
                folder.string(), script);
  return folder;
}

std::vector<std::string> command_of(const BenchArguments& arguments, const fs::path& script,
                                    const std::vector<std::string>& words) {
  std::vector<std::string> command = {arguments.python, script.string()};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

fs::path packages_of(const fs::path& folder) { return folder.parent_path().parent_path() / ".deps" / "peers"; }

}  // namespace

bool has_package(const BenchArguments& arguments, const std::string& name) {
  return fs::exists(packages_of(folder_of(arguments, "decode.py")) / name);
}

std::unique_ptr<PeerProcess> start_peer(const BenchArguments& arguments, const std::string& script,
                                        const std::vector<std::string>& words, bool best) {
  const fs::path folder = folder_of(arguments, script), installed = packages_of(folder);
  base::require(fs::exists(installed / "settings.so") && fs::exists(installed / "safetensors"),
                "{}: the peers are not set up; run bench/setup, or use --no-peers", installed.string());
  std::vector<std::pair<std::string, std::string>> environment = {
      {"PYTHONPATH", installed.string()}, {"OMP_NUM_THREADS", std::to_string(at::get_num_threads())}};
  if (best) environment.emplace_back("LD_PRELOAD", (installed / "settings.so").string());
  return std::make_unique<PeerProcess>(command_of(arguments, folder / script, words), environment);
}

std::unique_ptr<PeerProcess> start_device_peer(const BenchArguments& arguments, const std::string& script,
                                               const std::vector<std::string>& words) {
  using Environment = std::vector<std::pair<std::string, std::string>>;
  return std::make_unique<PeerProcess>(command_of(arguments, folder_of(arguments, script) / script, words),
                                       Environment{}, PeerProcess::Start::go_on);
}

BenchPeers start_peers(const BenchArguments& arguments, const BenchCase& bench_case, const BenchSubject& subject) {
  const HandOver hand_over;
  const std::string tensors = hand_over.path("tensors.safetensors");
  weights::write_safetensors(tensors, subject.tensors());
  std::vector<std::string> words = {base::to_json(bench_case.as_node(at::get_num_threads()), 0), tensors};
  BenchPeers started;
  started.stock = start_peer(arguments, "peer.py", words, false);
  words.push_back("--fused");
  started.best = start_peer(arguments, "peer.py", words, true);
  return started;
}

std::vector<std::string> differences(const BenchPeers& peers, const BenchCase& bench_case,
                                     const BenchSubject& subject) {
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

}  // namespace mnemo::bench
