#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/case.h"
#include "bench/peer_process.h"

namespace mnemo::bench {

/// A temporary folder for the peers' input files, removed on destruction.
class HandOver {
 public:
  HandOver();
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

/// Starts a script from the peers' folder with these arguments and as many threads as ours; `best`: with the same two
/// process settings as ours. Throws InputError if the peers are not set up or the script does not start.
std::unique_ptr<PeerProcess> start_peer(const BenchArguments& arguments, const std::string& script,
                                        const std::vector<std::string>& words, bool best);

/// Whether a package that bench/setup does not install is among the peers' packages.
bool has_package(const BenchArguments& arguments, const std::string& name);

/// Starts a script from the peers' folder with the packages and the settings of the interpreter that is named, which
/// need not be those of bench/setup. Throws InputError if the script does not start.
std::unique_ptr<PeerProcess> start_device_peer(const BenchArguments& arguments, const std::string& script,
                                               const std::vector<std::string>& words);

/// The two peers of one case: PyTorch as installed, and PyTorch with fused AdamW and the two process settings. Both
/// null if there are none.
struct BenchPeers {
  std::unique_ptr<PeerProcess> stock, best;
};

/// Starts both peers with our parameters and tokens.
BenchPeers start_peers(const BenchArguments& arguments, const BenchCase& bench_case, const BenchSubject& subject);

/// How the peers' results differ from ours, one line each; empty if both compute the same.
std::vector<std::string> differences(const BenchPeers& peers, const BenchCase& bench_case, const BenchSubject& subject);

}  // namespace mnemo::bench
