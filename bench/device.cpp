#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
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
constexpr int64_t kMostSequences = 16;  ///< and how many times the batch of a model's case
constexpr double kAnswerSeconds = 90;   ///< limit for one answer of a peer, whose first call compiles
constexpr int64_t kStepsAtOnce = 3, kTokensAtOnce = 64;

/// One of the peers of a measurement, and its seconds, one per round.
struct Rival {
  std::string name, request;
  PeerProcess* process = nullptr;
  std::string failed = {};  ///< why it has no figures
  std::vector<double> seconds = {}, times = {};
};

struct DeviceRow {
  std::string name, job;  ///< job: forward, backward, training step or token
  std::string dtype;
  int64_t tokens = 0, batch = 0;
  Rounds seconds = {};  ///< per call, step or token
  double flops = 0;     ///< of the matrix products of a call; 0: not counted
  std::vector<Rival> rivals = {};
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

std::string answer_of(PeerProcess& peer, const std::string& request) {
  const std::optional<std::string> answer = peer.ask_within(request, kAnswerSeconds);
  base::require(answer.has_value(), "no answer within {} seconds", kAnswerSeconds);
  base::require(!answer->starts_with("failed: "), "{}", *answer);
  return *answer;
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

/// The peers of one kernel, a process each: what one does to the device is its own.
struct KernelPeers {
  const BenchArguments& arguments;
  at::Device device;
  double tolerance;  ///< of norms
  std::vector<Rival> rivals = {};
  std::vector<std::unique_ptr<PeerProcess>> processes = {};
  HandOver hand_over = {};

  /// Gives them the inputs and compares their results with ours.
  void load(const KernelSubject& subject) {
    const std::string file = hand_over.path("inputs.safetensors");
    weights::NamedTensors tensors = subject.tensors();
    for (auto& [name, tensor] : tensors) tensor = tensor.detach().cpu();
    weights::write_safetensors(file, tensors);
    const std::vector<double> norms = subject.norms();
    processes.resize(rivals.size());
    for (size_t i = 0; i < rivals.size(); ++i) {
      Rival& rival = rivals[i];
      unless_failed(rival.failed, [&] {
        if (!processes[i]) processes[i] = start_device_peer(arguments, "kernel.py", {"1", device.str()});
        rival.process = processes[i].get();
        answer_of(*rival.process, "load " + file);
        const std::string theirs = answer_of(*rival.process, "norms " + rival.name);
        require_norms(base::parse_json(theirs, "the peer's answer"), norms, tolerance);
        return true;
      });
    }
  }
};

void measure_kernels(const BenchArguments& arguments, at::Device device, const DeviceKernel& kernel,
                     const std::pair<std::string, at::ScalarType>& type, std::vector<DeviceRow>& rows) {
  KernelPeers peers{arguments, device, type.second == at::kFloat ? 1e-3 : 0.1};
  for (const std::string& name : kernel.peers) {
    if (!arguments.no_peers) peers.rivals.push_back({name, {}});
  }
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
      rows.push_back(std::move(row));
    }
  }
}

/// A training step beside eager PyTorch and torch.compile, a token beside eager PyTorch.
void measure_model(const BenchArguments& arguments, at::Device device, const std::string& name,
                   std::vector<DeviceRow>& rows) {
  BenchCase bench_case = *std::find_if(bench_cases().begin(), bench_cases().end(),
                                       [&](const BenchCase& c) { return c.name == name; });
  if (!device.is_cpu()) bench_case.batch *= kMostSequences;
  bench_case.evaluation_segment = 0;
  BenchSubject subject(bench_case, device);
  const BenchFigures figures = subject.figures();
  const HandOver hand_over;
  const std::string file = hand_over.path("tensors.safetensors");
  weights::write_safetensors(file, subject.tensors());
  std::vector<Rival> rivals;
  std::vector<std::unique_ptr<PeerProcess>> processes;
  for (const char* peer : {"eager", "compile"}) {
    if (arguments.no_peers) break;
    Rival& rival = rivals.emplace_back(Rival{peer, fmt::format("train {}", kStepsAtOnce)});
    unless_failed(rival.failed, [&] {
      std::vector<std::string> words = {base::to_json(bench_case.as_node(1), 0), file, "--fused", "--device",
                                        device.str()};
      if (rival.name == "compile") words.push_back("--compile");
      processes.push_back(start_device_peer(arguments, "peer.py", words));
      rival.process = processes.back().get();
      const BenchFigures theirs = read_figures(answer_of(*rival.process, "check"), "the peer's answer");
      const std::string difference = unlike("loss", figures.loss, theirs.loss, 1e-3) +
                                     unlike("gradient norm", figures.gradient_norm, theirs.gradient_norm, 1e-2);
      base::require(difference.empty(), "not the same: {}", difference);
      return true;
    });
  }
  DeviceRow step{name, "training step", "float32", bench_case.segment * bench_case.segments, bench_case.batch};
  step.flops = subject.train_products();
  step.rivals = rivals;
  measure(step, arguments.repeats, kStepsAtOnce, [&] { return subject.train(kStepsAtOnce); });

  DeviceRow token{name, "token", "float32", bench_case.segment, 1};
  if (!rivals.empty()) {
    token.rivals.push_back(step.rivals.front());
    token.rivals.front().request = fmt::format("generate {} {}", bench_case.segment, kTokensAtOnce);
    token.rivals.front().seconds.clear(), token.rivals.front().times.clear();
  }
  measure(token, arguments.repeats, kTokensAtOnce, [&] { return subject.generate(bench_case.segment, kTokensAtOnce); });
  rows.push_back(std::move(step));
  rows.push_back(std::move(token));
}

base::Node device_figures(const std::vector<DeviceRow>& rows, const std::string& device) {
  base::Node list = base::Node::array();
  for (const DeviceRow& r : rows) {
    base::Node row = base::Node::table({{"case", r.name},
                                        {"job", r.job},
                                        {"dtype", r.dtype},
                                        {"T", r.tokens},
                                        {"batch", r.batch},
                                        {"seconds", as_node(r.seconds)}});
    if (r.flops > 0) row.set("flops", r.flops / r.seconds.median);
    base::Node peers = base::Node::table();
    for (const Rival& rival : r.rivals) {
      peers.set(rival.name, rival.seconds.empty() ? base::Node::table({{"failed", rival.failed}})
                                                  : base::Node::table({{"seconds", as_node(rounds_of(rival.seconds))},
                                                                       {"times", as_node(rounds_of(rival.times))}}));
    }
    row.set("peers", peers);
    list.push_back(row);
  }
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
  std::vector<DeviceRow> rows;
  for (const auto& type : device_types()) {
    for (const DeviceKernel& kernel : device_kernels()) {
      if (arguments.wants(kernel_case_name(kernel, type.first))) measure_kernels(arguments, device, kernel, type, rows);
    }
  }
  for (const std::string& name : device_models()) {
    if (arguments.wants(name)) measure_model(arguments, device, name, rows);
  }
  return {.figures = device_figures(rows, arguments.device), .text = device_text(rows)};
}

}  // namespace mnemo::bench
