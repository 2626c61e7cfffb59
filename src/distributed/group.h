#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch.h"

namespace mnemo::distributed {

/// Another rank has ended, hangs or cannot be reached; the message names rank, host and step. The command line exits
/// with status 1.
class RankFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether this build has c10d's processes (Gloo's headers were there when it was configured); otherwise joining a
/// group is an InputError that says how to get them.
bool available();

struct GroupOptions {
  /// How long a rank may be silent or late before the others end.
  std::chrono::seconds timeout{600};
  /// The file that a rank writes to, for messages; empty: none.
  std::function<std::string(int64_t rank)> log = {};
  /// Watches the other ranks from a thread that ends this process when one is silent. Off where ranks are threads.
  bool watches = true;
};

/// A reduction that runs while the caller works.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns when the tensor holds the sum. Throws RankFailure.
  virtual void wait() = 0;
};

/// The ranks of one training, on c10d's TCPStore and ProcessGroupGloo, with ProcessGroupNCCL for tensors on GPUs. All
/// of them call the same functions in the same order. A function throws RankFailure when another rank ends or does not
/// come within the time-out.
class Group {
 public:
  /// Joins the others at the store. Throws InputError without c10d, RankFailure if some do not come.
  static std::shared_ptr<Group> join(const Place& place, const GroupOptions& options = {});
  virtual ~Group() = default;

  int64_t rank() const { return place_.rank; }
  int64_t size() const { return place_.size; }
  const Place& place() const { return place_; }

  /// The sum over the ranks, in place, the same bits on all of them. float, double, bfloat16 or int64, contiguous.
  void sum(at::Tensor& tensor) { start_sum(tensor)->wait(); }
  virtual std::unique_ptr<Pending> start_sum(at::Tensor& tensor) = 0;
  /// The largest value over the ranks.
  virtual int64_t max(int64_t value) = 0;
  /// The tensors of all ranks, in the order of the ranks; shapes and types may differ.
  virtual std::vector<at::Tensor> gather(const at::Tensor& tensor) = 0;
  virtual std::vector<std::string> gather(const std::string& text) = 0;
  /// The root's tensor, in place; the same shape and type on all ranks, contiguous.
  virtual void broadcast(at::Tensor& tensor, int64_t root) = 0;
  /// Rank 0's text.
  virtual std::string broadcast(const std::string& text) = 0;

  /// Adds to a number that all ranks share, 0 at first, and returns the sum; waits for nobody. Adding 0 reads it.
  virtual int64_t add(const std::string& counter, int64_t amount) = 0;

  /// Throws InputError on every rank, naming the first entry that differs from rank 0's and the rank, unless all have
  /// the same entries: (what it is, its fingerprint).
  void require_same(const std::vector<std::pair<std::string, std::string>>& entries, const std::string& what);

  /// Notes this rank's step, which messages of other ranks name.
  virtual void note_step(int64_t step) = 0;
  /// Tells the others why this rank ends, before it does.
  virtual void report_failure(const std::string& message) noexcept = 0;
  /// The last call: waits for all ranks; from here on no rank is missed.
  virtual void leave() = 0;

 protected:
  explicit Group(Place place) : place_(std::move(place)) {}
  Place place_;
};

/// Entries for require_same() that must always agree between ranks: the bytes of this program and of its LibTorch.
std::vector<std::pair<std::string, std::string>> program_entries();

/// A store where ranks meet, on a free port of this machine: for ranks that this process starts.
class Rendezvous {
 public:
  /// Listens on 127.0.0.1 alone. Throws InputError without c10d.
  Rendezvous();
  ~Rendezvous();
  uint16_t port() const;
  /// A rank of `job` as messages name it, with its host and, in a training, its step.
  std::string named(const std::string& job, int64_t rank) const;
  /// Tells the ranks of `job` that one has ended.
  void report_failure(const std::string& job, const std::string& message) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mnemo::distributed
