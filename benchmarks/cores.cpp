// Attention cores beside eager PyTorch, turn about in one run: forward and backward of one operation.
//   cmake --build --preset release --target bench_cores && build/release/bench_cores PYTHON [THREADS]
// The peers are those of benchmarks/setup, with its settings for speed. Batch 4, 4 heads of 64, one thread; windows of 128 rows, blocks and chunks
// of 64, 3 random blocks, 2 rounds of 32 buckets, 64 slots. A line's figures: milliseconds, the median of 7 rounds, and how many times as long
// each form of the peer takes (peers/cores.py; "best" is what a careful author writes). Norms that differ end the program.
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/node.h"
#include "cli/peer_process.h"
#include "cli/process_settings.h"
#include "ops/attention.h"
#include "ops/block_pattern.h"
#include "ops/key_window.h"
#include "ops/linear_attention.h"
#include "ops/linformer.h"
#include "ops/lsh.h"
#include "weights/safetensors.h"

namespace {

using namespace mnemo;

constexpr int64_t kBatch = 4, kHeads = 4, kWidth = 64, kWindow = 128, kBlock = 64, kSlots = 64;
constexpr double kScale = 0.125;

struct Inputs {
  at::Tensor q, k, v, weight, e, f, rotations, blocks;
  weights::NamedTensors named() const {
    return {{"q", q}, {"k", k}, {"v", v}, {"weight", weight}, {"e", e}, {"f", f}, {"rotations", rotations}, {"blocks", blocks}};
  }
};

Inputs inputs_of(int64_t time) {
  at::manual_seed(time);
  // As projections leave them: joined heads in memory.
  const auto heads = [&] { return at::randn({kBatch, time, kHeads, kWidth}).transpose(1, 2).set_requires_grad(true); };
  return {heads(), heads(), heads(), at::randn({kBatch, kHeads, time, kWidth}), at::randn({kSlots, time}) * 0.1, at::randn({kSlots, time}) * 0.1,
          at::randn({2, kHeads, kWidth, 16}), ops::bigbird_blocks(time / kBlock, 3, 0, 0)};
}

using Core = std::function<at::Tensor(const Inputs&)>;

at::Tensor linear(const Inputs& in) {
  const ops::LinearSums none{at::zeros({kBatch, kHeads, kWidth, kWidth}), at::zeros({kBatch, kHeads, kWidth})};
  return ops::linear_attention_causal(ops::elu_features(in.q), ops::elu_features(in.k), in.v, {}, {}, none, {}).o;
}
at::Tensor window(const Inputs& in) {
  const int64_t time = in.q.size(2);
  return ops::attention(in.q, in.k, in.v, {}, ops::key_window(ops::KeyRanges::causal(time, time), kWindow - 1, 0), kScale);
}
at::Tensor bigbird(const Inputs& in) { return ops::attention(in.q, in.k, in.v, {}, ops::block_ranges(in.blocks, kBlock, in.q.size(2)), kScale); }
at::Tensor lsh(const Inputs& in) {
  return ops::lsh_attention(in.q, in.v, ops::lsh_buckets(in.q, in.rotations, {}), {}, {32, kBlock, false, true});
}
at::Tensor linformer(const Inputs& in) { return ops::linformer(in.q, in.k, in.v, in.e, in.f, {}, kScale); }

std::vector<at::Tensor> run(const Core& core, const Inputs& in) {
  const at::Tensor o = core(in);
  std::vector<at::Tensor> all = {o};
  for (const at::Tensor& grad : torch::autograd::grad({o}, {in.q, in.k, in.v}, {in.weight}, false, false, true)) all.push_back(grad);
  return all;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void compare(cli::PeerProcess& peer, const std::string& name, const Core& core, const Inputs& in) {
  std::istringstream words(peer.ask("forms " + name));
  std::vector<std::string> forms{std::istream_iterator<std::string>(words), {}};
  const std::vector<at::Tensor> ours = run(core, in);
  for (const std::string& form : forms) {
    const base::Node theirs = base::parse_json(peer.ask("norms " + name + " " + form), "the peer's answer");
    for (size_t i = 0; i < ours.size(); ++i) {
      const double mine = ours[i].defined() ? ours[i].to(at::kDouble).norm().item<double>() : 0.0, other = theirs.items()[i].as_double();
      base::require(std::abs(mine - other) <= 1e-3 * (1 + std::abs(other)), "{} {}: norm {} is {}, the peer's {}", name, form, i, mine, other);
    }
  }
  std::vector<double> seconds;
  std::vector<std::vector<double>> times(forms.size());
  for (int round = 0; round < 7; ++round) {
    double least = INFINITY;
    for (int call = 0; call < 3; ++call) {
      const auto began = std::chrono::steady_clock::now();
      run(core, in);
      least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    seconds.push_back(least);
    for (size_t i = 0; i < forms.size(); ++i) times[i].push_back(peer.seconds("seconds " + name + " " + forms[i] + " 3") / least);
  }
  std::string line = fmt::format("{:<15} {:>5} rows {:>9.2f} ms", name, in.q.size(2), 1e3 * median(seconds));
  for (size_t i = 0; i < forms.size(); ++i) {
    line += fmt::format("   {}: {:.2f} times ({:.2f} to {:.2f})", forms[i], median(times[i]), *std::min_element(times[i].begin(), times[i].end()),
                        *std::max_element(times[i].begin(), times[i].end()));
  }
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  cli::apply_process_settings();
  try {
    base::require(argc >= 2, "usage: bench_cores PYTHON [THREADS]");
    const std::string threads = argc > 2 ? argv[2] : "1", file = std::filesystem::temp_directory_path() / "mnemo_bench_cores.safetensors";
    at::set_num_threads(std::stoi(threads));
    const std::string installed = MNEMO_PEERS "/../../.deps/peers";
    cli::PeerProcess peer({argv[1], MNEMO_PEERS "/cores.py", threads},
                          {{"PYTHONPATH", installed}, {"LD_PRELOAD", installed + "/settings.so"}, {"OMP_NUM_THREADS", threads}});
    for (const int64_t time : {512, 2048}) {
      const Inputs in = inputs_of(time);
      weights::write_safetensors(file, in.named(), {});
      peer.ask("load " + file);
      for (const auto& [name, core] : std::vector<std::pair<std::string, Core>>{
               {"linear", linear}, {"sliding_window", window}, {"bigbird", bigbird}, {"lsh", lsh}, {"linformer", linformer}}) {
        compare(peer, name, core, in);
      }
    }
    std::filesystem::remove(file);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_cores: %s\n", error.what());
    return 2;
  }
}
