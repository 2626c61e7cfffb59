#include "distributed/group.h"

#ifdef MNEMO_GLOO

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/types.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/machine.h"
#include "distributed/device_backend.h"
#include "distributed/heartbeat.h"
#include "distributed/spawn.h"

namespace mnemo::distributed {
namespace {

using Milliseconds = std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string prefix_of(const std::string& job) { return "mnemo/" + job; }

/// A socket that listens at this address and no other; port 0: a free one. Nothing for a name that is no numeric
/// address: what it means on this machine (127.0.1.1, say) need not be what others see.
std::optional<int> listener_at(const std::string& address, uint16_t port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  const std::string numeric = address == "localhost" ? "127.0.0.1" : address;
  if (getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return std::nullopt;
  const int listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  const bool listens = listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
                       bind(listener, found->ai_addr, found->ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0;
  const int reason = errno;
  freeaddrinfo(found);
  if (!listens && listener >= 0) close(listener);
  base::require(listens, "several processes: rank 0 ({}) cannot listen at {}:{}: {}", base::host_name(), address, port,
                std::strerror(reason));
  return listener;
}

c10::intrusive_ptr<c10d::Store> connect(const Place& place, Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.rank == 0 && !place.hosted;
  // A store that makes its own socket listens on every interface.
  if (options.isServer) {
    if (const auto listener = listener_at(place.address, place.port)) options.masterListenFd = *listener;
  }
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::PrefixStore>(prefix_of(place.job),
                                                c10::make_intrusive<c10d::TCPStore>(place.address, options));
}

/// GLOO_SOCKET_IFNAME as for PyTorch; ranks of one machine need no other interface than the loopback.
std::shared_ptr<::gloo::transport::Device> device_of(const Place& place) {
  if (const auto name = environment("GLOO_SOCKET_IFNAME"); name && !name->empty())
    return c10d::ProcessGroupGloo::createDeviceForInterface(*name);
  if (place.one_machine()) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

/// Ends this process, which may wait in c10d without a limit, once it has joined for longer than its time-out or its
/// launcher is gone.
class JoinLimit {
 public:
  /// For c10d, which reports a time-out of its own with a better reason.
  static constexpr std::chrono::seconds kGrace{2};

  JoinLimit(std::chrono::seconds timeout, std::function<std::string()> failure)
      : deadline_(Clock::now() + timeout + kGrace), failure_(std::move(failure)) {
    thread_ = std::thread([this] { watch(); });
  }
  ~JoinLimit() {
    {
      const std::lock_guard lock(mutex_);
      joined_ = true;
    }
    wakes_.notify_one();
    thread_.join();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!wakes_.wait_for(lock, Milliseconds(500), [&] { return joined_; })) {
      if (!launcher_.empty() && std::to_string(getppid()) != launcher_)
        end_process(fmt::format("the process {}, which started this one, has ended", launcher_));
      if (Clock::now() > deadline_) end_process(failure_());
    }
  }

  /// Of a rank that `mnemo` itself has started; empty: not known.
  const std::string launcher_ = environment(kLauncherVariable).value_or("");
  const Clock::time_point deadline_;
  const std::function<std::string()> failure_;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool joined_ = false;
  std::thread thread_;
};

class GlooGroup final : public Group {
 public:
  GlooGroup(const Place& place, const GroupOptions& options) : Group(place), options_(options) {
    const auto timeout = std::chrono::duration_cast<Milliseconds>(options.timeout);
    std::optional<JoinLimit> limit;
    if (options.watches) limit.emplace(options.timeout, [this] { return not_joined("the store does not answer"); });
    try {
      store_ = connect(place, timeout);
      heart_ = std::make_unique<Heartbeat>(place, options, store_->clone());
      heart_->send();
      require_size();
      auto gloo = c10d::ProcessGroupGloo::Options::create(timeout);
      gloo->devices = {device_of(place)};
      backend_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store_),
                                                             static_cast<int>(place.rank), static_cast<int>(place.size),
                                                             gloo);
      gather(std::string());  // nobody is watched before all are here
    } catch (const RankFailure&) {
      throw;
    } catch (const base::InputError&) {
      throw;
    } catch (const std::exception& error) {
      throw RankFailure(not_joined(heart_ ? heart_->absent(first_line(error)) : first_line(error)));
    }
    limit.reset();
    heart_->start();
  }

  std::unique_ptr<Pending> start_sum(at::Tensor& tensor) override {
    return guarded([&]() -> std::unique_ptr<Pending> {
      std::vector<at::Tensor> tensors = {tensor};
      return std::make_unique<Sum>(*this, backend_of(tensor).allreduce(tensors));
    });
  }

  int64_t max(int64_t value) override {
    return guarded([&] {
      std::vector<at::Tensor> tensors = {at::scalar_tensor(value, at::kLong)};
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      backend_->allreduce(tensors, options)->wait();
      return tensors.front().item<int64_t>();
    });
  }

  std::vector<std::string> gather(const std::string& text) override {
    const auto length = static_cast<int64_t>(text.size());
    const auto lengths = guarded([&] { return all(at::scalar_tensor(length, at::kLong)); });
    int64_t longest = 1;
    for (const at::Tensor& other : lengths) longest = std::max(longest, other.item<int64_t>());
    at::Tensor mine = at::zeros({longest}, at::kByte);
    if (length > 0) std::memcpy(mine.mutable_data_ptr<uint8_t>(), text.data(), text.size());
    std::vector<std::string> texts;
    const auto padded = guarded([&] { return all(mine); });
    for (size_t rank = 0; rank < padded.size(); ++rank) {
      texts.emplace_back(reinterpret_cast<const char*>(padded[rank].const_data_ptr<uint8_t>()),
                         static_cast<size_t>(lengths[rank].item<int64_t>()));
    }
    return texts;
  }

  std::vector<at::Tensor> gather(const at::Tensor& tensor) override {
    const at::Tensor local = tensor.detach().to(at::kCPU).contiguous();
    std::string header = fmt::format("{}", static_cast<int>(local.scalar_type()));
    for (const int64_t size : local.sizes()) header += fmt::format(" {}", size);
    const std::vector<std::string> headers = gather(header);
    std::vector<at::Tensor> whole;
    int64_t longest = 1;
    for (const std::string& text : headers) {
      std::vector<int64_t> numbers;
      for (const char* at = text.c_str(); *at != '\0';) numbers.push_back(std::strtol(at, const_cast<char**>(&at), 10));
      whole.push_back(at::empty(at::IntArrayRef(numbers).slice(1), static_cast<at::ScalarType>(numbers.front())));
      longest = std::max(longest, static_cast<int64_t>(whole.back().nbytes()));
    }
    at::Tensor mine = at::zeros({longest}, at::kByte);
    if (local.nbytes() > 0) std::memcpy(mine.mutable_data_ptr(), local.const_data_ptr(), local.nbytes());
    const auto padded = guarded([&] { return all(mine); });
    for (size_t rank = 0; rank < whole.size(); ++rank) {
      if (whole[rank].nbytes() > 0)
        std::memcpy(whole[rank].mutable_data_ptr(), padded[rank].const_data_ptr(), whole[rank].nbytes());
    }
    return whole;
  }

  void broadcast(at::Tensor& tensor, int64_t root) override {
    guarded([&] {
      std::vector<at::Tensor> tensors = {tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      return backend_of(tensor).broadcast(tensors, options)->wait();
    });
  }

  std::string broadcast(const std::string& text) override { return gather(rank() == 0 ? text : std::string()).front(); }

  int64_t add(const std::string& counter, int64_t amount) override {
    try {
      return store_->add("counter/" + counter, amount);
    } catch (const std::exception& error) {
      throw RankFailure(heart_->diagnose(first_line(error)));
    }
  }

  void note_step(int64_t step) override { heart_->note_step(step); }

  void report_failure(const std::string& message) noexcept override {
    try {
      heart_->report(message);
      // The store ends with rank 0: the others are to read it first.
      if (rank() == 0 && !place_.hosted) std::this_thread::sleep_for(std::chrono::seconds(2));
    } catch (const std::exception&) {  // the store is gone: no rank can be notified
    }
  }

  void leave() override {
    heart_->leave();
    gather(std::string());
    heart_->stop();
    gather(std::string());
  }

 private:
  class Sum final : public Pending {
   public:
    Sum(GlooGroup& group, c10::intrusive_ptr<c10d::Work> work) : group_(group), work_(std::move(work)) {}
    void wait() override {
      group_.guarded([&] { return work_->wait(); });
    }

   private:
    GlooGroup& group_;
    c10::intrusive_ptr<c10d::Work> work_;
  };

  std::string not_joined(const std::string& reason) const {
    return fmt::format("rank {} ({}): could not join the {} ranks at {}:{} within {} s: {}", rank(), base::host_name(),
                       size(), place_.address, place_.port, options_.timeout.count(), reason);
  }

  /// Throws InputError where another rank came first and counts other ranks.
  void require_size() {
    const std::string mine = std::to_string(size());
    const std::vector<uint8_t> found = store_->compareSet("size", {}, std::vector<uint8_t>(mine.begin(), mine.end()));
    const std::string first(found.begin(), found.end());
    base::require(first == mine, "several processes: rank {} ({}) is one of {}, others at {}:{} are of {}", rank(),
                  base::host_name(), mine, place_.address, place_.port, first);
  }

  /// Without where in Gloo's sources it happened, and Gloo's advice.
  static std::string first_line(const std::exception& error) {
    const auto* own = dynamic_cast<const c10::Error*>(&error);
    std::string text = own != nullptr ? own->what_without_backtrace() : error.what();
    text = text.substr(0, text.find('\n'));
    if (text.starts_with("[/") && text.find("] ") != std::string::npos) text.erase(0, text.find("] ") + 2);
    return text.substr(0, text.find(". This is typically caused by"));
  }

  /// Gloo for tensors on the CPU; for those on a GPU NCCL, which the ranks join with the first of them.
  c10d::Backend& backend_of(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return *backend_;
    if (device_backend_ == nullptr) {
      device_backend_ = make_device_backend(c10::make_intrusive<c10d::PrefixStore>("device", store_),
                                            static_cast<int>(rank()), static_cast<int>(size()),
                                            std::chrono::duration_cast<Milliseconds>(options_.timeout));
    }
    return *device_backend_;
  }

  std::vector<at::Tensor> all(const at::Tensor& tensor) {
    std::vector<std::vector<at::Tensor>> out(1);
    for (int64_t other = 0; other < size(); ++other) out[0].push_back(at::empty_like(tensor));
    std::vector<at::Tensor> in = {tensor};
    backend_->allgather(out, in)->wait();
    return out[0];
  }

  /// Runs a collective; errors name the rank that is to blame.
  template <class F>
  auto guarded(F&& collective) -> decltype(collective()) {
    heart_->begin_collective();
    try {
      return collective();
    } catch (const RankFailure&) {
      throw;
    } catch (const std::exception& error) {
      throw RankFailure(heart_->diagnose(first_line(error)));
    }
  }

  GroupOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_;
  c10::intrusive_ptr<c10d::Backend> device_backend_;
  std::unique_ptr<Heartbeat> heart_;
};

}  // namespace

bool available() { return true; }

std::shared_ptr<Group> Group::join(const Place& place, const GroupOptions& options) {
  return std::make_shared<GlooGroup>(place, options);
}

struct Rendezvous::Impl {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

Rendezvous::Rendezvous() : impl_(std::make_unique<Impl>()) {
  const int listener = *listener_at("127.0.0.1", 0);
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  base::require(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
                "several processes: cannot listen on 127.0.0.1: {}", std::strerror(errno));
  c10d::TCPStoreOptions options;
  options.port = ntohs(address.sin_port);
  options.masterListenFd = listener;
  options.isServer = true;
  options.waitWorkers = false;
  impl_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}
Rendezvous::~Rendezvous() = default;

uint16_t Rendezvous::port() const { return impl_->store->getPort(); }

std::string Rendezvous::named(const std::string& job, int64_t rank) const {
  c10d::PrefixStore store(prefix_of(job), impl_->store);
  return named_by(store, rank);
}

void Rendezvous::report_failure(const std::string& job, const std::string& message) noexcept {
  try {
    c10d::PrefixStore store(prefix_of(job), impl_->store);
    publish_failure(store, message);
  } catch (const std::exception&) {  // the ranks find out by themselves
  }
}

}  // namespace mnemo::distributed

#else

#include "base/error.h"

namespace mnemo::distributed {
namespace {

[[noreturn]] void missing() {
  base::input_error(
      "several processes: this build has no c10d: install Gloo's headers (Debian: libgloo-dev), configure and build "
      "again");
}

}  // namespace

bool available() { return false; }
std::shared_ptr<Group> Group::join(const Place&, const GroupOptions&) { missing(); }
struct Rendezvous::Impl {};
Rendezvous::Rendezvous() { missing(); }
Rendezvous::~Rendezvous() = default;
uint16_t Rendezvous::port() const { return 0; }
std::string Rendezvous::named(const std::string&, int64_t) const { return {}; }
void Rendezvous::report_failure(const std::string&, const std::string&) noexcept {}

}  // namespace mnemo::distributed

#endif
