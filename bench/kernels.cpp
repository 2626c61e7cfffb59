#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/kernel.h"
#include "bench/limits.h"
#include "bench/peers.h"

namespace mnemo::bench {
namespace {

struct KernelPeer {
  std::string name;
  Rounds seconds, ratio;  ///< ratio: how many times faster ours is
};

struct KernelRow {
  KernelCase kernel_case = {};
  bool backward = false;
  Rounds seconds;
  std::optional<Rounds> share;  ///< of G, the fastest matrix product of the same rounds
  double product = 0;           ///< G
  std::vector<KernelPeer> peers;

  std::string direction() const { return backward ? "backward" : "forward"; }
};

/// A figure that has its own bar.
struct KernelFact {
  std::string bench_case, key;  ///< key in the file of bars
  std::string about;
  Rounds value;
};

struct KernelResults {
  std::vector<KernelRow> rows;
  std::vector<KernelFact> facts;
  double read = 0, product = 0;  ///< best of all rounds
};

struct KernelLengths {
  std::string name;
  int64_t slots;
  std::vector<int64_t> times;
  int64_t sdpa_until;  ///< abc: compared with SDPA up to this length
};

const std::vector<KernelLengths>& kernel_lengths() {
  static const std::vector<KernelLengths> lengths = {
      {"causal", 0, {256, 512, 1024, 2048, 4096}, 4096},
      {"relative", 0, {256, 512, 1024, 2048}, 0},
      {"abc_32", 32, {512, 1024, 2048, 4096, 8192, 16384}, 2048},
      {"abc_64", 64, {512, 1024, 2048, 4096, 8192, 16384}, 2048},
  };
  return lengths;
}

constexpr int64_t kShort = 1024, kLong = 16384;  ///< for the growth of abc

struct Limits {
  ReadLimit read;
  ProductLimit product;
};

/// Compares the peer's norms with ours; a line if they differ.
std::string norms_differ(PeerProcess& peer, const std::string& operation, const std::vector<double>& ours) {
  const base::Node theirs = base::parse_json(peer.ask("norms " + operation), "the peer's answer");
  bool same = theirs.size() == ours.size();
  for (size_t i = 0; same && i < ours.size(); ++i)
    same = std::abs(theirs.items()[i].as_double() - ours[i]) <= 1e-4 * ours[i] + 1e-6;
  return same ? std::string()
              : fmt::format("{}: norms {:.6g}, the peer's {}", operation, fmt::join(ours, " "),
                            base::to_json(theirs, 0));
}

/// Alternates between ours, the peers and the matrix product. A round's figure is the fastest of a few calls, about a
/// tenth of a second in total.
KernelRow measure_kernel(const KernelLengths& lengths, const KernelCase& kernel_case, const KernelSubject& subject,
                         bool backward, int64_t repeats, PeerProcess* peer, Limits& limits) {
  KernelRow row;
  row.kernel_case = kernel_case;
  row.backward = backward;
  auto ours = [&](int64_t count) { return fastest_of(count, [&] { subject.run(backward); }); };
  ours(1);
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(0.1 / ours(1)), 1, 32);
  std::vector<std::string> names;
  for (const std::string& name : kernel_case.peers()) {
    if (peer != nullptr && (name != "sdpa" || kernel_case.time <= lengths.sdpa_until)) names.push_back(name);
  }
  std::vector<double> seconds;
  std::vector<std::vector<double>> theirs(names.size()), ratios(names.size());
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = ours(count);
    std::vector<double> others;
    for (const std::string& name : names) {
      others.push_back(peer->seconds(fmt::format("{} {} {}", row.direction(), name, count)));
    }
    row.product = std::max(row.product, limits.product.measure());
    if (round < 0) continue;  // warm-up
    seconds.push_back(mine);
    for (size_t i = 0; i < names.size(); ++i) {
      theirs[i].push_back(others[i]);
      ratios[i].push_back(others[i] / mine);
    }
  }
  row.seconds = rounds_of(seconds);
  for (size_t i = 0; i < names.size(); ++i) row.peers.push_back({names[i], rounds_of(theirs[i]), rounds_of(ratios[i])});
  if (const double products = kernel_case.products(backward); products > 0) {
    row.share = share_of(products / row.product, row.seconds);
  }
  return row;
}

/// The extra memory of a call beyond its inputs (relative: forward with a graph), or the total memory (abc: forward and
/// backward), relative to the memory it cannot do without.
std::optional<KernelFact> measure_memory(const KernelCase& kernel_case) {
  const bool scan = kernel_case.slots > 0;
  if (!scan && kernel_case.name != "relative") return std::nullopt;
  KernelCase small = kernel_case;
  small.time = 64;
  KernelSubject(small).run(true);  // loads code and creates the buffers that stay allocated
  const KernelSubject subject(kernel_case);
  at::Tensor kept;
  const std::optional<int64_t> extra = extra_memory([&] {
    if (scan) {
      subject.run(true);
    } else {
      kept = subject.output();
    }
  });
  if (!extra) return std::nullopt;
  const double needed = static_cast<double>(subject.bytes());
  KernelFact fact{kernel_case.name, fmt::format("memory_{}", kernel_case.time), {}, {}};
  if (scan) {  // inputs and their gradients, the output and its weight, the memories between chunks
    const double all = 2 * needed + static_cast<double>(subject.chunk_bytes());
    fact.about = fmt::format("{}, T = {}, with backward: peak over inputs, outputs, gradients and chunk states",
                             kernel_case.name, kernel_case.time);
    fact.value.median = (static_cast<double>(*extra) + needed) / all;
  } else {
    fact.about = fmt::format("{}, T = {}, forward: extra memory over q, k, v, r and output", kernel_case.name,
                             kernel_case.time);
    fact.value.median = static_cast<double>(*extra) / needed;
  }
  fact.value.least = fact.value.most = fact.value.median;
  return fact;
}

KernelFact measure_growth(const KernelLengths& lengths, bool backward, int64_t repeats) {
  const KernelSubject near({lengths.name, kShort, lengths.slots}), far({lengths.name, kLong, lengths.slots});
  std::vector<double> ratios;
  for (int64_t round = -1; round < repeats; ++round) {
    const double short_one = fastest_of(8, [&] { near.run(backward); });
    const double long_one = fastest_of(2, [&] { far.run(backward); });
    if (round >= 0) ratios.push_back(long_one / short_one);
  }
  return {lengths.name, backward ? "growth_backward" : "growth_forward",
          fmt::format("{}, {}: time at {} over time at {}", lengths.name, backward ? "with backward" : "forward", kLong,
                      kShort),
          rounds_of(ratios)};
}

void compare_kernels_with_bars(const KernelResults& results, Bars& bars) {
  for (const KernelRow& row : results.rows) {
    const KernelCase& c = row.kernel_case;
    const std::string what = fmt::format("{}, T = {}, {}", c.name, c.time, row.backward ? "with backward" : "forward");
    if (row.share)
      bars.at_least("kernels." + c.name, fmt::format("{}_{}", row.direction(), c.time), row.share->median,
                    what + ", share of G");
    for (const KernelPeer& peer : row.peers) {
      bars.at_least(fmt::format("kernels.{}.{}", c.name, peer.name), fmt::format("{}_{}", row.direction(), c.time),
                    peer.ratio.median, fmt::format("{}, times {}", what, peer.name));
    }
  }
  for (const KernelFact& fact : results.facts)
    bars.at_most("kernels." + fact.bench_case, fact.key, fact.value.median, fact.about);
}

base::Node kernel_figures(const KernelResults& results) {
  base::Node rows = base::Node::array(), facts = base::Node::array();
  for (const KernelRow& r : results.rows) {
    base::Node row = base::Node::table({{"case", r.kernel_case.name},
                                        {"T", r.kernel_case.time},
                                        {"direction", r.direction()},
                                        {"seconds", as_node(r.seconds)}});
    if (r.share) {
      row.set("share_of_product", as_node(*r.share));
      row.set("product", r.product);
    }
    base::Node peers = base::Node::table();
    for (const KernelPeer& peer : r.peers)
      peers.set(peer.name, base::Node::table({{"seconds", as_node(peer.seconds)}, {"times", as_node(peer.ratio)}}));
    row.set("peers", peers);
    rows.push_back(row);
  }
  for (const KernelFact& f : results.facts) {
    facts.push_back(base::Node::table(
        {{"case", f.bench_case}, {"figure", f.key}, {"about", f.about}, {"value", as_node(f.value)}}));
  }
  return base::Node::table({{"read", results.read}, {"product", results.product}, {"results", rows}, {"facts", facts}});
}

std::string kernel_text(const KernelResults& results) {
  using Align = base::TextTable::Align;
  base::TextTable table({"operation", "T", "", "ms, median", "least", "most", "share of G", "x SDPA", "x eager"},
                        {Align::left, Align::right, Align::left, Align::right, Align::right, Align::right, Align::right,
                         Align::right, Align::right});
  for (const KernelRow& r : results.rows) {
    std::string sdpa, eager;
    for (const KernelPeer& peer : r.peers) (peer.name == "sdpa" ? sdpa : eager) = range_text(peer.ratio);
    table.add_row({r.kernel_case.name, std::to_string(r.kernel_case.time), r.backward ? "with backward" : "forward",
                   fmt::format("{:.2f}", r.seconds.median * 1e3), fmt::format("{:.2f}", r.seconds.least * 1e3),
                   fmt::format("{:.2f}", r.seconds.most * 1e3), range_text(r.share), sdpa, eager});
  }
  std::string text = fmt::format(
      "read {:.1f} GB/s, G {:.1f} GFLOP/s, the best of all rounds; 8 heads of 64, batch 1\n\n{}\n", results.read / 1e9,
      results.product / 1e9, table.text());
  for (const KernelFact& fact : results.facts) text += fmt::format("{}: {}\n", fact.about, range_text(fact.value));
  return text +
         "share of G: of the best float32 product in the same rounds. x SDPA, x eager: how many times faster than "
         "LibTorch's own attention, "
         "and than the same operation written in eager PyTorch, both with our two process settings\n";
}

}  // namespace

std::vector<std::string> kernel_case_names() {
  std::vector<std::string> names;
  for (const KernelLengths& lengths : kernel_lengths()) names.push_back(lengths.name);
  return names;
}

BenchReport bench_kernels(const BenchArguments& arguments, Bars& bars) {
  KernelResults results;
  for (const KernelLengths& lengths : kernel_lengths()) {  // first, before anything else leaves buffers behind
    if (!arguments.wants(lengths.name)) continue;
    for (const int64_t time : {kShort, 2 * kShort}) {
      if (auto fact = measure_memory({lengths.name, time, lengths.slots})) results.facts.push_back(std::move(*fact));
    }
  }
  std::unique_ptr<PeerProcess> peer;
  if (!arguments.no_peers) peer = start_peer(arguments, "kernel.py", {std::to_string(at::get_num_threads())}, true);
  const HandOver hand_over;
  Limits limits;
  for (const KernelLengths& lengths : kernel_lengths()) {
    if (!arguments.wants(lengths.name)) continue;
    for (const int64_t time : lengths.times) {
      const KernelCase kernel_case{lengths.name, time, lengths.slots};
      const KernelSubject subject(kernel_case);
      if (peer) {
        const std::string file = hand_over.path("inputs.safetensors");
        weights::write_safetensors(file, subject.tensors());
        peer->ask("load " + file);
        if (const std::string line = norms_differ(*peer, kernel_case.peers().front(), subject.norms()); !line.empty())
          return {.differences = {line}};
      }
      for (const bool backward : {false, true}) {
        results.rows.push_back(
            measure_kernel(lengths, kernel_case, subject, backward, arguments.repeats, peer.get(), limits));
        results.product = std::max(results.product, results.rows.back().product);
        results.read = std::max(results.read, limits.read.measure());
      }
    }
    if (lengths.slots > 0) {
      for (const bool backward : {false, true})
        results.facts.push_back(measure_growth(lengths, backward, arguments.repeats));
    }
  }
  compare_kernels_with_bars(results, bars);
  return {.figures = kernel_figures(results), .text = kernel_text(results)};
}

}  // namespace mnemo::bench
