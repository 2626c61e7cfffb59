#pragma once

#include <memory>
#include <string>

#include "cli/bench_case.h"
#include "cli/peer_process.h"

namespace mnemo::cli {

/// The two peers of one case: PyTorch as installed, and with fused AdamW and the two process settings. None of them: both null.
struct BenchPeers {
  std::unique_ptr<PeerProcess> stock, best;
};

/// Starts both peers of the folder `peers` with our parameters and tokens.
/// Throws InputError where they are not set up or do not start.
BenchPeers start_peers(const std::string& peers, const std::string& python, const BenchCase& bench_case, const BenchSubject& subject);

/// What a peer computes otherwise than we do, a line each; empty where both compute the same.
std::vector<std::string> differences(const BenchPeers& peers, const BenchCase& bench_case, const BenchSubject& subject);

}  // namespace mnemo::cli
