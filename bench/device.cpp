#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/kernel.h"
#include "bench/peers.h"
#include "experiment/device.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kLoad = 65536;        ///< tokens of a kernel's batch, in 16 sequences at most
constexpr int64_t kMostSequences = 16;
constexpr int64_t kTimesTheBatch = 8;  ///< of a model's case on a device; all models and their peers stay in its memory
constexpr double kAnswerSeconds = 90;  ///< limit for one answer of a peer, whose first call compiles
constexpr double kCheckSeconds = 130;  ///< limit for the first answers of all models' peers together
constexpr int64_t kStepsAtOnce = 3, kTokensAtOnce = 64;

/// One of the peers of a measurement, and its seconds, one per round.
struct Rival {
  std::string name, request;
  PeerProcess* process = nullptr;
  std::string failed = {};  ///< why it has no figures
  std::vector<double> seconds = {}, times = {};
};

struct DeviceRow {
  std::string name, job;  ///< job: forward, backward, training step, token, or token by graphs
  std::string dtype;
  int64_t tokens = 0, batch = 0;
  Rounds seconds = {};  ///< per call, step or token
  double flops = 0;     ///< of the matrix products of a call; 0: not counted
  std::vector<Rival> rivals = {};
  int64_t by_graphs = -1;  ///< tokens that graphs have run; -1: not asked for
};

struct DeviceKernel {
  std::string name;
  int64_t slots;
  std::vector<std::string> peers;
  std::vector<int64_t> times;
};

const std::vector<DeviceKernel>& device_kernels() {
  static const std::vector<DeviceKernel> kernels = {
      {"abc_64", 64, {"abc", "fla"}, {512, 1024, 2048, 4096, 8192, 16384}},
      {"cached", 0, {"cached"}, {512, 1024, 2048}},
      {"relative", 0, {"relative"}, {512, 1024, 2048}},
  };
  return kernels;
}

const std::vector<std::pair<std::string, at::ScalarType>>& device_types() {
  static const std::vector<std::pair<std::string, at::ScalarType>> types = {{"float32", at::kFloat},
                                                                            {"bf16", at::kBFloat16}};
  return types;
}

const std::vector<std::string>& device_models() {
  static const std::vector<std::string> models = {"transformer_xl", "rmt", "abc"};
  return models;
}

std::string kernel_case_name(const DeviceKernel& kernel, const std::string& dtype) { return kernel.name + "_" + dtype; }

/// Calls the function and returns its result; nothing if it fails for a peer's sake, or did before, and then `failed`
/// says why.
template <class F>
auto unless_failed(std::string& failed, F function) -> std::optional<decltype(function())> {
  if (!failed.empty()) return std::nullopt;
  try {
    return function();
  } catch (const base::InputError& error) {
    failed = error.what();
    return std::nullopt;
  }
}

/// The answer to what the peer was sent.
std::string answer_of(PeerProcess& peer, double limit) {
  const std::optional<std::string> answer = peer.answer_within(limit);
  base::require(answer.has_value(), "no answer within {:.0f} seconds", limit);
  base::require(!answer->starts_with("failed: "), "{}", *answer);
  return *answer;
}

std::string answer_of(PeerProcess& peer, const std::string& request) {
  peer.send(request);
  return answer_of(peer, kAnswerSeconds);
}

/// Alternates between ours and the rivals; `count` calls of each a round.
void measure(DeviceRow& row, int64_t repeats, double count, const std::function<double()>& ours) {
  std::vector<double> seconds;
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = ours();
    if (round >= 0) seconds.push_back(mine / count);
    for (Rival& rival : row.rivals) {
      const std::optional<double> theirs = unless_failed(
          rival.failed, [&] { return rival.process->number(answer_of(*rival.process, rival.request)); });
      if (!theirs || round < 0) continue;  // the first round warms up
      rival.seconds.push_back(*theirs / count);
      rival.times.push_back(*theirs / mine);
    }
  }
  row.seconds = rounds_of(seconds);
}

/// Throws InputError if the norms of the peer's results are not ours.
void require_norms(const base::Node& theirs, const std::vector<double>& ours, double tolerance) {
  bool same = theirs.size() == ours.size();
  for (size_t i = 0; same && i < ours.size(); ++i)
    same = std::abs(theirs.items()[i].as_double() - ours[i]) <= tolerance * ours[i] + 1e-6;
  base::require(same, "not the same: norms {:.6g}, the peer's {}", fmt::join(ours, " "), base::to_json(theirs, 0));
}

/// Processes of kernel.py by operation, one each: what one does to the device is its own. They start side by side.
using KernelProcesses = std::map<std::string, std::unique_ptr<PeerProcess>>;

/// The peers of one kernel.
struct KernelPeers {
  const BenchArguments& arguments;
  at::Device device;
  double tolerance;  ///< of norms
  KernelProcesses& processes;
  std::vector<Rival> rivals = {};
  HandOver hand_over = {};

  void start(const std::string& name) {
    std::unique_ptr<PeerProcess>& process = processes[name];
    if (!process) process = start_device_peer(arguments, "kernel.py", {"1", device.str()});
  }

  /// Gives them the inputs and compares their results with ours.
  void load(const KernelSubject& subject) {
    const std::string file = hand_over.path("inputs.safetensors");
    weights::NamedTensors tensors = subject.tensors();
    for (auto& [name, tensor] : tensors) tensor = tensor.detach().cpu();
    weights::write_safetensors(file, tensors);
    const std::vector<double> norms = subject.norms();
    for (Rival& rival : rivals) {
      unless_failed(rival.failed, [&] {
        start(rival.name);
        rival.process = processes.at(rival.name).get();
        answer_of(*rival.process, "load " + file);
        const std::string theirs = answer_of(*rival.process, "norms " + rival.name);
        require_norms(base::parse_json(theirs, "the peer's answer"), norms, tolerance);
        return true;
      });
    }
  }

  /// One that has failed may be in the middle of something: the next kernel starts another.
  ~KernelPeers() {
    for (const Rival& rival : rivals) {
      if (!rival.failed.empty()) processes.erase(rival.name);
    }
  }
};

base::Node row_node(const DeviceRow& r);

/// Rows as they are measured. Each is written to stderr at once too, so that a run that is stopped has its figures.
class DeviceRows {
 public:
  explicit DeviceRows(bool json) : json_(json) {}
  void add(DeviceRow row) {
    rows_.push_back(std::move(row));
    if (json_) fmt::print(stderr, "{}\n", base::to_json(row_node(rows_.back()), 0));
  }
  const std::vector<DeviceRow>& all() const { return rows_; }

 private:
  bool json_;
  std::vector<DeviceRow> rows_;
};

void measure_kernels(const BenchArguments& arguments, at::Device device, const DeviceKernel& kernel,
                     const std::pair<std::string, at::ScalarType>& type, KernelProcesses& processes,
                     DeviceRows& rows) {
  KernelPeers peers{arguments, device, type.second == at::kFloat ? 1e-3 : 0.1, processes};
  for (const std::string& name : kernel.peers) {
    if (!arguments.no_peers) peers.rivals.push_back({name, {}});
  }
  for (const Rival& rival : peers.rivals) peers.start(rival.name);
  for (const int64_t time : kernel.times) {
    const std::vector<std::string>& wanted = arguments.lengths;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), std::to_string(time)) == wanted.end()) continue;
    const KernelCase kernel_case{.name = kernel.name,
                                 .time = time,
                                 .slots = kernel.slots,
                                 .batch = device.is_cpu() ? 1 : std::clamp<int64_t>(kLoad / time, 1, kMostSequences),
                                 .device = device,
                                 .dtype = type.second};
    const KernelSubject subject(kernel_case);
    peers.load(subject);
    for (const bool backward : {false, true}) {
      const auto ours = [&](int64_t count) {
        return fastest_of(count, [&] {
          subject.run(backward);
          wait_for(device);
        });
      };
      ours(2);
      const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(0.03 / ours(1)), 1, 32);
      DeviceRow row{kernel.name, backward ? "backward" : "forward", type.first, time, kernel_case.batch};
      row.flops = kernel_case.products(backward);
      for (Rival& rival : peers.rivals) {
        row.rivals.push_back(rival);
        row.rivals.back().request = fmt::format("{} {} {}", row.job, rival.name, count);
      }
      measure(row, arguments.repeats, 1, [&] { return ours(count); });
      for (size_t i = 0; i < row.rivals.size(); ++i) peers.rivals[i].failed = row.rivals[i].failed;
      rows.add(std::move(row));
    }
  }
}

/// A model beside eager PyTorch and torch.compile. Their processes start and compile side by side with those of other
/// models; nothing is measured until all have answered.
class ModelCase {
 public:
  ModelCase(const BenchArguments& arguments, at::Device device, const std::string& name)
      : arguments_(arguments), device_(device), case_(case_of(name, device)), subject_(case_, device) {
    if (arguments.no_peers) return;
    const std::string file = hand_over_.path("tensors.safetensors");
    weights::write_safetensors(file, subject_.tensors());
    for (const char* peer : {"eager", "compile"}) {
      Rival& rival = rivals_.emplace_back(Rival{peer, fmt::format("train {}", kStepsAtOnce)});
      std::vector<std::string> words = {base::to_json(case_.as_node(1), 0), file, "--fused", "--device", device.str()};
      if (rival.name == "compile") words.push_back("--compile");
      unless_failed(rival.failed, [&] {
        processes_.push_back(start_device_peer(arguments, "peer.py", words));
        rival.process = processes_.back().get();
        return true;
      });
    }
    figures_ = subject_.figures();
  }

  void ask() {
    for (Rival& rival : rivals_) unless_failed(rival.failed, [&] { return rival.process->send("check"), true; });
  }

  /// Compares their answers, which take so many seconds at most, with ours.
  void hear(double limit) {
    for (Rival& rival : rivals_) {
      unless_failed(rival.failed, [&] {
        const BenchFigures theirs = read_figures(answer_of(*rival.process, limit), "the peer's answer");
        const std::string difference = unlike("loss", figures_.loss, theirs.loss, 1e-3) +
                                       unlike("gradient norm", figures_.gradient_norm, theirs.gradient_norm, 1e-2);
        base::require(difference.empty(), "not the same: {}", difference);
        return true;
      });
    }
  }

  void measure_tokens(DeviceRows& rows) {
    for (const bool graphs : {false, true}) {
      if (graphs && device_.is_cpu()) continue;
      const int64_t position = case_.segment * (graphs ? 2 : 1);  // apart, as the peer goes on from where it stopped
      DeviceRow row{case_.name, graphs ? "token by graphs" : "token", "float32", position, 1};
      if (!rivals_.empty()) {
        row.rivals.push_back(rivals_.front());
        row.rivals.front().request = fmt::format("generate {} {}", position, kTokensAtOnce);
      }
      measure(row, arguments_.repeats, kTokensAtOnce,
              [&] { return subject_.generate(position, kTokensAtOnce, graphs); });
      if (graphs) row.by_graphs = subject_.graph_tokens(position);
      if (graphs && row.by_graphs == 0) row.job = "token, not recorded";
      rows.add(std::move(row));
    }
  }

  void measure_training(DeviceRows& rows) {
    DeviceRow row{case_.name, "training step", "float32", case_.segment * case_.segments, case_.batch};
    row.flops = subject_.train_products();
    row.rivals = rivals_;
    measure(row, arguments_.repeats, kStepsAtOnce, [&] { return subject_.train(kStepsAtOnce); });
    rows.add(std::move(row));
  }

 private:
  static BenchCase case_of(const std::string& name, at::Device device) {
    BenchCase found = *std::find_if(bench_cases().begin(), bench_cases().end(),
                                    [&](const BenchCase& c) { return c.name == name; });
    if (!device.is_cpu()) found.batch *= kTimesTheBatch;
    found.evaluation_segment = 0;
    return found;
  }

  const BenchArguments& arguments_;
  at::Device device_;
  BenchCase case_;
  BenchSubject subject_;
  BenchFigures figures_;
  HandOver hand_over_;
  std::vector<Rival> rivals_;
  std::vector<std::unique_ptr<PeerProcess>> processes_;
};

void measure_models(const BenchArguments& arguments, at::Device device, DeviceRows& rows) {
  std::vector<std::unique_ptr<ModelCase>> models;
  for (const std::string& name : device_models()) {
    if (arguments.wants(name)) models.push_back(std::make_unique<ModelCase>(arguments, device, name));
  }
  for (const auto& model : models) model->ask();
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& model : models) model->hear(std::max(1.0, kCheckSeconds - seconds_since(begin)));
  for (const auto& model : models) model->measure_tokens(rows);
  for (const auto& model : models) model->measure_training(rows);
}

base::Node row_node(const DeviceRow& r) {
  base::Node row = base::Node::table({{"case", r.name},
                                      {"job", r.job},
                                      {"dtype", r.dtype},
                                      {"T", r.tokens},
                                      {"batch", r.batch},
                                      {"seconds", as_node(r.seconds)}});
  if (r.flops > 0) row.set("flops", r.flops / r.seconds.median);
  if (r.by_graphs >= 0) row.set("by_graphs", r.by_graphs);
  base::Node peers = base::Node::table();
  for (const Rival& rival : r.rivals) {
    peers.set(rival.name, rival.seconds.empty() ? base::Node::table({{"failed", rival.failed}})
                                                : base::Node::table({{"seconds", as_node(rounds_of(rival.seconds))},
                                                                     {"times", as_node(rounds_of(rival.times))}}));
  }
  row.set("peers", peers);
  return row;
}

base::Node device_figures(const std::vector<DeviceRow>& rows, const std::string& device) {
  base::Node list = base::Node::array();
  for (const DeviceRow& row : rows) list.push_back(row_node(row));
  return base::Node::table({{"device", device}, {"results", list}});
}

std::string device_text(const std::vector<DeviceRow>& rows) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"case", "type", "T", "batch", "", "ms, median", "TFLOP/s", "times as fast as"},
      {Align::left, Align::left, Align::right, Align::right, Align::left, Align::right, Align::right, Align::left});
  std::string failures;
  for (const DeviceRow& r : rows) {
    std::string times;
    for (const Rival& rival : r.rivals) {
      if (rival.seconds.empty()) {
        failures += fmt::format("{}, {}, T = {}, {}: {}: {}\n", r.name, r.dtype, r.tokens, r.job, rival.name,
                                rival.failed);
      } else {
        times += fmt::format("{}{} {}", times.empty() ? "" : ", ", rival.name, range_text(rounds_of(rival.times)));
      }
    }
    table.add_row({r.name, r.dtype, std::to_string(r.tokens), std::to_string(r.batch), r.job,
                   fmt::format("{:.3f}", r.seconds.median * 1e3),
                   r.flops > 0 ? fmt::format("{:.2f}", r.flops / r.seconds.median / 1e12) : std::string(), times});
  }
  return table.text() + "\n" + failures;
}

}  // namespace

std::vector<std::string> device_case_names() {
  std::vector<std::string> names;
  for (const auto& [dtype, _] : device_types()) {
    for (const DeviceKernel& kernel : device_kernels()) names.push_back(kernel_case_name(kernel, dtype));
  }
  names.insert(names.end(), device_models().begin(), device_models().end());
  return names;
}

std::vector<std::string> device_length_names() {
  std::vector<std::string> names;
  for (const int64_t time : device_kernels().front().times) names.push_back(std::to_string(time));
  return names;
}

BenchReport bench_device(const BenchArguments& arguments, Bars&) {
  const at::Device device = experiment::device_named(arguments.device);
  DeviceRows rows(arguments.json);
  measure_models(arguments, device, rows);
  KernelProcesses processes;
  for (const auto& type : device_types()) {
    for (const DeviceKernel& kernel : device_kernels()) {
      if (arguments.wants(kernel_case_name(kernel, type.first)))
        measure_kernels(arguments, device, kernel, type, processes, rows);
    }
  }
  return {.figures = device_figures(rows.all(), arguments.device), .text = device_text(rows.all())};
}

}  // namespace mnemo::bench
