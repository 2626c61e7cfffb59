#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/case.h"
#include "bench/peer_process.h"

namespace mnemo::bench {

/// A folder of its own for what the peers read, removed with it.
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

/// Starts a script of the peers' folder with these words, in as many threads as ours; `best`: with our two process
/// settings. Throws InputError where the peers are not set up or the script does not start.
std::unique_ptr<PeerProcess> start_peer(const BenchArguments& arguments, const std::string& script,
                                        const std::vector<std::string>& words, bool best);

/// The two peers of one case: PyTorch as installed, and with fused AdamW and the two process settings. None of them:
/// both null.
struct BenchPeers {
  std::unique_ptr<PeerProcess> stock, best;
};

/// Starts both peers with our parameters and tokens.
BenchPeers start_peers(const BenchArguments& arguments, const BenchCase& bench_case, const BenchSubject& subject);

/// What a peer computes otherwise than we do, a line each; empty where both compute the same.
std::vector<std::string> differences(const BenchPeers& peers, const BenchCase& bench_case, const BenchSubject& subject);

}  // namespace mnemo::bench
