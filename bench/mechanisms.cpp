#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/machine.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/mechanism.h"
#include "bench/peers.h"

namespace mnemo::bench {
namespace {

constexpr double kPeerSeconds = 60;    ///< limit for one step of a peer
constexpr double kRoundsSeconds = 30;  ///< no further round is started after this, except for the first three
constexpr int64_t kFewestRounds = 3;

/// The speed of one peer at one length, or why there is none.
struct PeerSpeed {
  std::optional<Rounds> tokens_per_second = {}, times = {};
  std::optional<int64_t> memory = {};
  std::string failed = {};
};

struct MechanismRow {
  MechanismCase mechanism;
  int64_t tokens = 0;
  Rounds tokens_per_second = {};
  int64_t rounds = 0, state_bytes = 0;
  std::optional<int64_t> memory = {};
  std::optional<PeerSpeed> stock = {}, best = {};
};

/// A peer and its seconds, one per round.
struct Runner {
  std::unique_ptr<PeerProcess> process;
  std::string dead = {};  ///< why it no longer answers
  std::string failed = {};
  std::vector<double> seconds = {};

  bool runs() const { return process != nullptr && failed.empty(); }

  std::optional<double> ask(const std::string& request) {
    const std::optional<std::string> answer = process->ask_within(request, kPeerSeconds);
    if (!answer) failed = dead = fmt::format("more than {:.0f} s", kPeerSeconds);
    if (answer && *answer == "out of memory") failed = *answer;
    if (!failed.empty()) return std::nullopt;
    return process->number(*answer);
  }

  PeerSpeed speed(int64_t tokens, const std::vector<double>& ours) const {
    PeerSpeed speed;
    speed.failed = failed;
    if (!failed.empty()) return speed;
    std::vector<double> rates, times;
    for (size_t i = 0; i < seconds.size(); ++i) {
      rates.push_back(static_cast<double>(tokens) / seconds[i]);
      times.push_back(seconds[i] / ours[i]);
    }
    speed.tokens_per_second = rounds_of(rates);
    speed.times = rounds_of(times);
    return speed;
  }
};

/// Alternates between ours and the peers; ratios are medians over the rounds.
MechanismRow measure_length(const BenchArguments& arguments, MechanismSubject& subject, Runner& stock, Runner& best,
                            int64_t tokens) {
  MechanismRow row;
  row.tokens = tokens;
  std::vector<double> ours, rates;
  for (Runner* peer : {&stock, &best}) {
    peer->failed = peer->dead;
    peer->seconds.clear();
  }
  const std::string request = fmt::format("train {}", tokens);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t round = -1; round < arguments.repeats; ++round) {
    if (round >= kFewestRounds && seconds_since(begin) > kRoundsSeconds) break;
    const double mine = subject.train(tokens);
    for (Runner* peer : {&stock, &best}) {
      const std::optional<double> theirs = peer->runs() ? peer->ask(request) : std::nullopt;
      if (theirs && round >= 0) peer->seconds.push_back(*theirs);
    }
    if (round < 0) continue;  // warm-up
    ours.push_back(mine);
    rates.push_back(static_cast<double>(tokens) / mine);
  }
  row.tokens_per_second = rounds_of(rates);
  row.rounds = static_cast<int64_t>(ours.size());
  row.memory = subject.memory(tokens);
  row.state_bytes = subject.state_bytes(tokens);
  if (stock.process) row.stock = stock.speed(tokens, ours);
  if (best.process) {
    row.best = best.speed(tokens, ours);
    if (best.runs()) {
      if (const auto bytes = best.ask(fmt::format("memory {}", tokens)))
        row.best->memory = static_cast<int64_t>(*bytes);
    }
  }
  return row;
}

/// Starts both peers and compares their results with ours; empty if they are the same.
std::vector<std::string> start(const BenchArguments& arguments, const MechanismCase& mechanism,
                               const MechanismSubject& subject, Runner& stock, Runner& best) {
  const HandOver hand_over;
  const std::string tensors = hand_over.path("tensors.safetensors");
  weights::write_safetensors(tensors, subject.tensors());
  // Ours and both peers never return memory to the system.
  const int64_t memory_limit = base::this_machine().memory / 3;
  std::vector<std::string> words = {base::to_json(subject.peer_case(at::get_num_threads(), memory_limit), 0), tensors};
  stock.process = start_peer(arguments, "mechanisms.py", words, false);
  words.push_back("--fused");
  best.process = start_peer(arguments, "mechanisms.py", words, true);
  const MechanismFigures ours = subject.figures();
  std::vector<std::string> found;
  for (const auto& [name, peer] : {std::pair("stock", &stock), std::pair("best", &best)}) {
    const std::string answer = peer->process->ask(subject.check_request());
    const std::string line = mechanism_disagreement(mechanism, ours,
                                                    read_mechanism_figures(answer, "the peer's answer"));
    if (!line.empty()) found.push_back(fmt::format("{}, {}: {}", mechanism.name, name, line));
  }
  return found;
}

base::Node as_node(const PeerSpeed& speed) {
  if (!speed.failed.empty()) return base::Node::table({{"failed", speed.failed}});
  base::Node node = base::Node::table(
      {{"tokens_per_second", as_node(*speed.tokens_per_second)}, {"times", as_node(*speed.times)}});
  if (speed.memory) node.set("peak_memory", *speed.memory);
  return node;
}

base::Node mechanism_figures(const std::vector<MechanismRow>& rows) {
  base::Node results = base::Node::array();
  for (const MechanismRow& row : rows) {
    base::Node node = base::Node::table(
        {{"case", row.mechanism.name},
         {"segment", row.mechanism.segment() == 0 ? row.tokens : row.mechanism.segment()},
         {"T", row.tokens},
         {"rounds", row.rounds},
         {"tokens_per_second", as_node(row.tokens_per_second)},
         {"state_bytes", row.state_bytes}});
    if (row.memory) node.set("peak_memory", *row.memory);
    base::Node peers = base::Node::table();
    if (row.stock) peers.set("stock", as_node(*row.stock));
    if (row.best) peers.set("best", as_node(*row.best));
    node.set("peers", peers);
    results.push_back(node);
  }
  return base::Node::table({{"results", results}});
}

std::string per_second(const std::optional<PeerSpeed>& speed) {
  if (!speed) return {};
  return speed->tokens_per_second ? fmt::format("{:.0f}", speed->tokens_per_second->median) : speed->failed;
}

std::string megabytes(const std::optional<int64_t>& bytes) {
  return bytes ? fmt::format("{:.0f}", static_cast<double>(*bytes) / 1e6) : std::string();
}

std::string mechanism_text(const std::vector<MechanismRow>& rows, bool peers) {
  using Align = base::TextTable::Align;
  std::vector<std::string> header = {"mechanism", "segment", "T", "tokens/s", "state, bytes", "peak, MB"};
  if (peers) header.insert(header.end(), {"stock", "best", "best, MB", "x stock", "x best"});
  std::vector<Align> align(header.size(), Align::right);
  align[0] = Align::left;
  base::TextTable table(header, align);
  for (const MechanismRow& row : rows) {
    std::vector<std::string> cells = {row.mechanism.name,
                                      row.mechanism.segment() == 0 ? "T" : fmt::format("{}", row.mechanism.segment()),
                                      fmt::format("{}", row.tokens),
                                      fmt::format("{:.0f}", row.tokens_per_second.median),
                                      fmt::format("{}", row.state_bytes),
                                      megabytes(row.memory)};
    if (peers) {
      const auto times = [](const std::optional<PeerSpeed>& speed) {
        return speed ? range_text(speed->times) : std::string();
      };
      cells.insert(cells.end(),
                   {per_second(row.stock), per_second(row.best), row.best ? megabytes(row.best->memory) : std::string(),
                    times(row.stock), times(row.best)});
    }
    table.add_row(cells);
  }
  return table.text() +
         "\ntokens/s of training steps over T tokens; segment T: in one piece, else in segments with what the memory "
         "carries. state: what is carried "
         "after T tokens, an open segment's keys and values included. peak: pages that a step takes beyond model, "
         "optimizer and text\n" +
         (peers ? fmt::format("stock, best: the same model in eager PyTorch as installed, and with fused AdamW and the "
                              "same two process settings; a peer is "
                              "given up after {:.0f} s for a step, or at a third of the machine's memory\n",
                              kPeerSeconds)
                : std::string());
}

}  // namespace

std::vector<std::string> mechanism_case_names() {
  std::vector<std::string> names;
  for (const MechanismCase& mechanism : mechanism_cases()) names.push_back(mechanism.name);
  return names;
}

BenchReport bench_mechanisms(const BenchArguments& arguments, Bars& bars) {
  BenchReport report;
  std::vector<MechanismRow> rows;
  for (const MechanismCase& mechanism : mechanism_cases()) {
    if (!arguments.wants(mechanism.name)) continue;
    MechanismSubject subject(mechanism);
    Runner stock, best;
    if (!arguments.no_peers) {
      const std::vector<std::string> different = start(arguments, mechanism, subject, stock, best);
      report.differences.insert(report.differences.end(), different.begin(), different.end());
      if (!different.empty()) continue;  // a peer with different results is not timed
    }
    for (const int64_t tokens : mechanism_lengths()) {
      if (!arguments.lengths.empty() && std::find(arguments.lengths.begin(), arguments.lengths.end(),
                                                  std::to_string(tokens)) == arguments.lengths.end()) {
        continue;
      }
      rows.push_back(measure_length(arguments, subject, stock, best, tokens));
      MechanismRow& row = rows.back();
      row.mechanism = mechanism;
      const std::string what = fmt::format("{} at {}", mechanism.name, tokens);
      if (row.stock && row.stock->times)
        bars.at_least("mechanisms", "stock", row.stock->times->median, what + ", times stock");
      if (row.best && row.best->times)
        bars.at_least("mechanisms", "best", row.best->times->median, what + ", times best");
    }
  }
  if (rows.empty()) return report;
  report.figures = mechanism_figures(rows);
  report.text = mechanism_text(rows, !arguments.no_peers);
  return report;
}

}  // namespace mnemo::bench
