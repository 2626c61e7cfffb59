#include "bench/decoding.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/limits.h"
#include "bench/peers.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kTokens = 8;  ///< per round; a round's figure is their median
constexpr int64_t kBatch = 16, kBatchContext = 128;
constexpr int64_t kNearPosition = 1000, kFarPosition = 1'000'000;  ///< positions for abc

struct DecodingPeers {
  std::unique_ptr<PeerProcess> stock, best, transformers, ctranslate2, llama_cpp;

  std::vector<std::pair<const char*, PeerProcess*>> all() const {
    return {{"stock", stock.get()},
            {"best", best.get()},
            {"transformers", transformers.get()},
            {"ctranslate2", ctranslate2.get()},
            {"llama_cpp", llama_cpp.get()}};
  }
};

/// One peer of a row, and its request.
struct DecodingPeer {
  std::string name;  ///< stock, best, dynamic_int8, transformers, ctranslate2 or llama_cpp; also the key in the file of bars
  PeerProcess* process;
  std::string precision;
  Rounds seconds = {}, ratio = {};  ///< seconds for one token of every sequence; how many times faster ours is
};

struct DecodingRow {
  std::string bench_case, precision;
  int64_t context = 0, batch = 1;
  Rounds seconds;  ///< for one token of every sequence
  double bytes = 0,
         read = 0;  ///< bytes it must read; bytes per second the machine reads, the best of the same rounds
  std::vector<DecodingPeer> peers;

  /// Share of the bandwidth bound.
  Rounds share() const {
    const double bound = bytes / read;
    return share_of(bound, seconds);
  }
  std::string what() const {
    return fmt::format("{}, {}, context {}{}", bench_case, precision, context,
                       batch > 1 ? fmt::format(", batch {}", batch) : std::string());
  }
};

struct DecodingResults {
  std::vector<DecodingRow> rows;
  std::vector<std::pair<std::string, double>> far;  ///< by precision: speed of abc at the far position relative to the
                                                    ///< near one
};

std::vector<DecodingPeer> peers_of(const DecodingPeers& peers, const DecodingRow& row) {
  if (!peers.stock) return {};
  std::vector<DecodingPeer> found;
  if (row.precision.starts_with("int4")) {  // only one of them has four bits
    if (peers.llama_cpp) found.push_back({"llama_cpp", peers.llama_cpp.get(), "int4"});
    return found;
  }
  const bool eight_bits = row.precision == "int8" || row.precision == "w8a8";
  const std::string theirs = eight_bits ? "int8" : row.precision;
  found.push_back({"stock", peers.stock.get(), eight_bits ? "float32" : row.precision});
  found.push_back({"best", peers.best.get(), theirs});
  if (eight_bits) found.push_back({"dynamic_int8", peers.stock.get(), theirs});
  if (!eight_bits) found.push_back({"transformers", peers.transformers.get(), theirs});
  if (row.precision != "bf16") found.push_back({"ctranslate2", peers.ctranslate2.get(), theirs});
  if (peers.llama_cpp) found.push_back({"llama_cpp", peers.llama_cpp.get(), theirs});
  return found;
}

DecodingRow measure_decoding(DecodingRow row, const DecodingPeers& peers, DecodingSubject& subject, int64_t repeats,
                             ReadLimit& limit) {
  row.peers = peers_of(peers, row);
  std::vector<double> seconds;
  std::vector<std::vector<double>> theirs(row.peers.size()), ratios(row.peers.size());
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = subject.token(row.precision, row.context, row.batch, kTokens);
    row.read = std::max(row.read, limit.measure());
    for (size_t i = 0; i < row.peers.size(); ++i) {
      const DecodingPeer& peer = row.peers[i];
      const double their = peer.process->seconds(
          fmt::format("token {} {} {} {}", peer.precision, row.context, row.batch, kTokens));
      if (round < 0) continue;  // warm-up
      theirs[i].push_back(their);
      ratios[i].push_back(their / mine);
    }
    if (round >= 0) seconds.push_back(mine);
  }
  row.seconds = rounds_of(seconds);
  for (size_t i = 0; i < row.peers.size(); ++i) {
    row.peers[i].seconds = rounds_of(theirs[i]);
    row.peers[i].ratio = rounds_of(ratios[i]);
  }
  row.bytes = subject.bytes(row.precision, row.context + kTokens * (repeats + 2) / 2);
  return row;
}

/// One token at a time, alternating between the near and the far position.
double near_over_far(DecodingSubject& subject, const std::string& precision, int64_t tokens) {
  std::vector<double> near, far;
  for (int64_t i = 0; i < tokens; ++i) {
    near.push_back(subject.token_at(precision, kNearPosition, 1));
    far.push_back(subject.token_at(precision, kFarPosition, 1));
  }
  return median(near) / median(far);
}

DecodingPeers start_decoding_peers(const BenchArguments& arguments, const DecodingCase& decoding_case,
                                   const DecodingSubject& subject) {
  const HandOver hand_over;
  const std::string file = hand_over.path("tensors.safetensors"),
                    options = base::to_json(decoding_case.as_node(at::get_num_threads()), 0);
  weights::write_safetensors(file, subject.tensors());
  auto start = [&](const char* kind, bool best) {
    return start_peer(arguments, "decode.py", {options, file, kind}, best);
  };
  DecodingPeers peers = {start("torch", false), start("torch", true), start("transformers", true),
                         start("ctranslate2", false), nullptr};
  if (decoding_case.kv_heads == 0 && has_package(arguments, "llama_cpp")) peers.llama_cpp = start("llama_cpp", false);
  return peers;
}

/// Peers that generate different tokens from the same parameters.
std::vector<std::string> other_tokens(const DecodingPeers& peers, const DecodingCase& decoding_case,
                                      DecodingSubject& subject) {
  constexpr int64_t kCompared = 24;
  const std::vector<int64_t> ours = subject.greedy(kCompared);
  std::vector<std::string> found;
  auto compare = [&](const char* name, PeerProcess& peer) {
    const base::Node answer = base::parse_json(peer.ask(fmt::format("greedy {}", kCompared)), "the peer's answer");
    std::vector<int64_t> theirs;
    for (const base::Node& token : answer.items()) theirs.push_back(token.as_int());
    if (theirs != ours)
      found.push_back(fmt::format("{}, {}: tokens {}, ours {}", decoding_case.name, name, fmt::join(theirs, " "),
                                  fmt::join(ours, " ")));
  };
  for (const auto& [name, peer] : peers.all()) {
    if (peer != nullptr) compare(name, *peer);
  }
  return found;
}

void compare_decoding_with_bars(const DecodingResults& results, Bars& bars) {
  for (const DecodingRow& row : results.rows) {
    if (row.batch == 1)
      bars.at_least("decoding.share", row.precision, row.share().median, row.what() + ", share of the bandwidth bound");
    const std::string table = row.batch == 1 ? "decoding" : fmt::format("decoding.batch_{}", row.batch);
    for (const DecodingPeer& peer : row.peers) {
      const std::string what = fmt::format("{}, times {}", row.what(), peer.name);
      const std::string own = fmt::format("{}.{}.{}", table, row.bench_case, peer.name);  // before that of all cases
      bars.at_least(bars.has(own, row.precision) ? own : fmt::format("{}.{}", table, peer.name), row.precision,
                    peer.ratio.median, what);
      bars.at_least(fmt::format("{}.{}", table, peer.name), fmt::format("{}_{}", row.precision, row.context),
                    peer.ratio.median, what);
    }
  }
  for (const auto& [precision, speed] : results.far) {
    bars.at_least(
        "decoding", "far", speed,
        fmt::format("six_layer_abc, {}: speed at position {} over that at {}", precision, kFarPosition, kNearPosition));
  }
}

base::Node decoding_figures(const DecodingResults& results) {
  base::Node rows = base::Node::array();
  for (const DecodingRow& r : results.rows) {
    base::Node row = base::Node::table({{"case", r.bench_case},
                                        {"precision", r.precision},
                                        {"context", r.context},
                                        {"batch", r.batch},
                                        {"seconds", as_node(r.seconds)},
                                        {"bytes", r.bytes},
                                        {"read", r.read},
                                        {"share", as_node(r.share())}});
    base::Node peers = base::Node::table();
    for (const DecodingPeer& p : r.peers) {
      peers.set(p.name,
                base::Node::table(
                    {{"precision", p.precision}, {"seconds", as_node(p.seconds)}, {"times", as_node(p.ratio)}}));
    }
    row.set("peers", peers);
    rows.push_back(row);
  }
  base::Node far = base::Node::table();
  for (const auto& [precision, speed] : results.far) far.set(precision, speed);
  return base::Node::table({{"results", rows}, {"abc_speed_1000000_over_1000", far}});
}

std::string decoding_text(const DecodingResults& results) {
  using Align = base::TextTable::Align;
  base::TextTable table({"case", "precision", "context", "batch", "ms, median", "least", "most", "share of read",
                         "x stock", "x best", "x dynamic int8", "x transformers", "x CTranslate2", "x llama.cpp"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right,
                         Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
                         Align::right});
  for (const DecodingRow& r : results.rows) {
    std::vector<std::string> cells = {r.bench_case,
                                      r.precision,
                                      std::to_string(r.context),
                                      std::to_string(r.batch),
                                      fmt::format("{:.3f}", r.seconds.median * 1e3),
                                      fmt::format("{:.3f}", r.seconds.least * 1e3),
                                      fmt::format("{:.3f}", r.seconds.most * 1e3),
                                      r.batch == 1 ? range_text(r.share()) : std::string()};
    for (const char* name : {"stock", "best", "dynamic_int8", "transformers", "ctranslate2", "llama_cpp"}) {
      const auto peer = std::find_if(r.peers.begin(), r.peers.end(),
                                     [&](const DecodingPeer& p) { return p.name == name; });
      cells.push_back(peer == r.peers.end() ? std::string() : range_text(peer->ratio));
    }
    table.add_row(std::move(cells));
  }
  std::string text = table.text() + "\n";
  for (const auto& [precision, speed] : results.far) {
    text += fmt::format("ABC, {}: speed at position {} over that at {}: {:.3f}\n", precision, kFarPosition,
                        kNearPosition, speed);
  }
  return text +
         "share of read: of the time that one pass over the weights and the sequence's keys, values or state takes at "
         "the best speed of a plain "
         "read loop in the same rounds. x stock, x best: the same model in eager PyTorch in the same precision (int8: "
         "stock in float32, best "
         "in dynamic int8) with preallocated caches, as installed and with our two process settings. x transformers: "
         "with "
         "the same settings. x llama.cpp: BF16, Q8_0 or Q4_0, if llama-cpp-python is installed (bench/peers/llama.py)\n";
}

}  // namespace

std::vector<std::string> decoding_case_names() {
  std::vector<std::string> names;
  for (const DecodingCase& decoding_case : decoding_cases()) names.push_back(decoding_case.name);
  return names;
}

BenchReport bench_decoding(const BenchArguments& arguments, Bars& bars) {
  const std::vector<std::string> precisions = arguments.precisions.empty() ? ops::precision_names()
                                                                           : arguments.precisions;
  DecodingResults results;
  ReadLimit limit;
  for (const DecodingCase& decoding_case : decoding_cases()) {
    if (!arguments.wants(decoding_case.name)) continue;
    DecodingSubject subject(decoding_case);
    DecodingPeers peers;
    if (!arguments.no_peers && decoding_case.has_peers()) {
      peers = start_decoding_peers(arguments, decoding_case, subject);
      BenchReport different;
      different.differences = other_tokens(peers, decoding_case, subject);
      if (!different.differences.empty()) return different;
    }
    for (const std::string& precision : precisions) {
      auto add = [&](int64_t context, int64_t batch) {
        DecodingRow row;
        row.bench_case = decoding_case.name;
        row.precision = precision;
        row.context = context;
        row.batch = batch;
        results.rows.push_back(measure_decoding(std::move(row), peers, subject, arguments.repeats, limit));
      };
      for (const int64_t context : decoding_case.contexts) add(context, 1);
      if (decoding_case.has_peers() && decoding_case.contexts.front() == kBatchContext) add(kBatchContext, kBatch);
      if (decoding_case.slots > 0)
        results.far.emplace_back(precision, near_over_far(subject, precision, 100 * arguments.repeats));
      subject.drop();
      for (const auto& [name, peer] : peers.all()) {
        if (peer != nullptr) peer->ask("drop");
      }
    }
  }
  compare_decoding_with_bars(results, bars);
  return {.figures = decoding_figures(results), .text = decoding_text(results)};
}

}  // namespace mnemo::bench
