#include <fmt/format.h>
#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "base/nearest.h"
#include "base/text_table.h"
#include "base/toml_reader.h"
#include "cli/bench_case.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/peer_process.h"

namespace mnemo::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> cases;
  std::string peers;
  std::string python = "python3";
  std::string bars;
  int64_t repeats = 7;
  bool no_peers = false, json = false, check = false;
};

struct Measured {
  std::string bench_case, job;
  double ours = 0, least = 0, most = 0;  ///< seconds a step or token: median, minimum, maximum
  std::optional<double> stock, best;     ///< times as fast as the peer
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The two peers of one case, or none.
struct Peers {
  std::unique_ptr<PeerProcess> stock, best;
};

Peers start_peers(const BenchArguments& arguments, const BenchCase& bench_case) {
  if (arguments.no_peers) return {};
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(arguments.peers).lexically_normal(), root = folder.parent_path().parent_path();
  base::require(fs::exists(folder / "peer.py"), "{}: expected peer.py there; name the folder with --peers, or use --no-peers",
                folder.string());
  base::require(fs::exists(root / ".deps/peers/settings.so"), "{}: the peers are not set up; run benchmarks/setup, or use --no-peers",
                (root / ".deps/peers").string());
  const std::string path = (root / ".deps/peers").string();
  const std::string threads = std::to_string(at::get_num_threads());
  std::vector<std::string> command = {arguments.python, (folder / "peer.py").string(),
                                      base::to_json(bench_case.as_node(at::get_num_threads()), 0)};
  std::vector<std::pair<std::string, std::string>> environment = {{"PYTHONPATH", path}, {"OMP_NUM_THREADS", threads}};
  Peers peers;
  peers.stock = std::make_unique<PeerProcess>(command, environment);
  command.push_back("--fused");
  environment.emplace_back("LD_PRELOAD", (root / ".deps/peers/settings.so").string());
  peers.best = std::make_unique<PeerProcess>(command, environment);
  return peers;
}

/// Ours and the peers turn about, so that the machine's moods meet all alike; ratios are medians of the rounds' ratios.
Measured measure(const std::string& name, const std::string& job, int64_t repeats, int64_t count, const Peers& peers,
                 const std::string& request, const std::function<double()>& ours) {
  std::vector<double> times, stock, best;
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = ours();
    const double theirs = peers.stock ? peers.stock->ask(request) : 0, tuned = peers.best ? peers.best->ask(request) : 0;
    if (round < 0) continue;  // warm-up
    times.push_back(mine / static_cast<double>(count));
    stock.push_back(theirs / mine);
    best.push_back(tuned / mine);
  }
  Measured measured{name, job, median(times), *std::min_element(times.begin(), times.end()),
                    *std::max_element(times.begin(), times.end()), std::nullopt, std::nullopt};
  if (peers.stock) measured.stock = median(stock);
  if (peers.best) measured.best = median(best);
  return measured;
}

std::vector<Measured> measure_case(const BenchArguments& arguments, const BenchCase& bench_case, std::optional<double>& flat) {
  BenchSubject subject(bench_case);
  const Peers peers = start_peers(arguments, bench_case);
  std::vector<Measured> all;
  const int64_t steps = bench_case.dim < 128 ? 10 : 3;
  all.push_back(measure(bench_case.name, "training step", arguments.repeats, steps, peers, fmt::format("train {}", steps),
                        [&] { return subject.train(steps); }));
  constexpr int64_t kTokens = 64;
  for (const int64_t position : {64, 1024, 16384}) {
    all.push_back(measure(bench_case.name, fmt::format("token at {}", position), arguments.repeats, kTokens, peers,
                          fmt::format("generate {} {}", position, kTokens),
                          [&] { return subject.generate(position, kTokens); }));
  }
  if (bench_case.slots > 0) {
    // Near and far turn about once more: their ratio is the claim, and it is smaller than the noise between minutes.
    std::vector<double> ratios;
    for (int64_t round = 0; round < 5 * arguments.repeats; ++round) {
      const double near = subject.generate(64, kTokens);
      ratios.push_back(subject.generate(16384, kTokens) / near);
    }
    flat = median(ratios);
  }
  return all;
}

std::vector<std::string> missed_bars(const std::string& path, const std::vector<Measured>& all, std::optional<double> flat) {
  const base::Node bars = base::read_config_file(path);
  std::vector<std::string> missed;
  auto check = [&](const Measured& measured, const char* table, const char* peer, const std::optional<double>& ratio) {
    const base::Node* section = bars.find(table);
    const base::Node* bar = section == nullptr ? nullptr : section->find(peer);
    if (bar == nullptr || !ratio || *ratio >= bar->as_double()) return;
    missed.push_back(fmt::format("{}, {}: {:.2f} times {}, expected at least {:.2f}", measured.bench_case, measured.job, *ratio,
                                 peer, bar->as_double()));
  };
  for (const Measured& measured : all) {
    const char* table = measured.job == "training step" ? "train" : "generate";
    check(measured, table, "stock", measured.stock);
    check(measured, table, "best", measured.best);
  }
  const base::Node* section = bars.find("flat");
  const base::Node* bar = section == nullptr ? nullptr : section->find("abc");
  if (bar != nullptr && flat && *flat > bar->as_double()) {
    missed.push_back(fmt::format("abc: a token at 16384 takes {:.3f} times one at 64, expected at most {:.2f}", *flat,
                                 bar->as_double()));
  }
  return missed;
}

base::Node as_node(const std::vector<Measured>& all, std::optional<double> flat, const std::vector<std::string>& missed) {
  base::Node rows = base::Node::array();
  for (const Measured& m : all) {
    base::Node row = base::Node::table({{"case", m.bench_case}, {"job", m.job}, {"seconds", m.ours}, {"least", m.least}, {"most", m.most}});
    if (m.stock) row.set("times_stock", *m.stock);
    if (m.best) row.set("times_best", *m.best);
    rows.push_back(row);
  }
  base::Node result = base::Node::table({{"machine", to_node(this_machine())}, {"threads", at::get_num_threads()}, {"results", rows}});
  if (flat) result.set("abc_16384_over_64", *flat);
  base::Node missed_node = base::Node::array();
  for (const std::string& line : missed) missed_node.push_back(line);
  result.set("missed", missed_node);
  return result;
}

int bench(const BenchArguments& arguments) {
  base::require(arguments.repeats >= 1, "--repeats: expected at least 1, found {}", arguments.repeats);
  std::vector<std::string> names;
  for (const BenchCase& bench_case : bench_cases()) names.push_back(bench_case.name);
  for (const std::string& name : arguments.cases) {
    base::require(std::find(names.begin(), names.end(), name) != names.end(), "--case: unknown case '{}'{}", name,
                  base::suggestion(name, names));
  }
  std::vector<Measured> all;
  std::optional<double> flat;
  for (const BenchCase& bench_case : bench_cases()) {
    const bool wanted = arguments.cases.empty() ||
                        std::find(arguments.cases.begin(), arguments.cases.end(), bench_case.name) != arguments.cases.end();
    if (!wanted) continue;
    for (Measured& measured : measure_case(arguments, bench_case, flat)) all.push_back(std::move(measured));
  }
  const std::vector<std::string> missed =
      arguments.check ? missed_bars(arguments.bars, all, flat) : std::vector<std::string>();
  if (arguments.json) {
    print(fmt::format("{}\n", base::to_json(as_node(all, flat, missed), 2)));
    return missed.empty() ? kDone : kAnswerIsNo;
  }
  using Align = base::TextTable::Align;
  base::TextTable table({"case", "job", "ms, median", "least", "most", "x stock", "x best"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  auto ratio = [](const std::optional<double>& value) { return value ? fmt::format("{:.2f}", *value) : std::string(); };
  for (const Measured& m : all) {
    table.add_row({m.bench_case, m.job, fmt::format("{:.3f}", m.ours * 1e3), fmt::format("{:.3f}", m.least * 1e3),
                   fmt::format("{:.3f}", m.most * 1e3), ratio(m.stock), ratio(m.best)});
  }
  const Machine machine = this_machine();
  print(fmt::format("{}, {} cores, {}; {} thread(s), median of {}\n\n{}\n", machine.cpu, machine.cores, machine.capability,
             at::get_num_threads(), arguments.repeats, table.text()));
  if (flat) print(fmt::format("ABC: a token at 16384 takes {:.3f} times one at 64\n", *flat));
  if (!arguments.no_peers) {
    print(fmt::format("x stock, x best: how many times faster than the same model in eager PyTorch as installed, and with the same two "
               "process settings; rounds turn about\n"));
  }
  for (const std::string& line : missed) print(fmt::format("missed: {}\n", line));
  return missed.empty() ? kDone : kAnswerIsNo;
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  arguments->peers = "benchmarks/peers";
  arguments->bars = "benchmarks/bars.toml";
  Command(app, "bench", "measures training steps and generation, turn about with the same models in eager PyTorch")
      .option("--case", arguments->cases, "NAME", "demo, transformer_xl, rmt or abc; may be repeated (all)")
      .option("--peers", arguments->peers, "DIR", "the folder with peer.py (benchmarks/peers)")
      .option("--python", arguments->python, "FILE", "the Python that runs the peers (python3)")
      .option("--repeats", arguments->repeats, "N", "rounds (7)")
      .option("--bars", arguments->bars, "FILE", "what --check asks for (benchmarks/bars.toml)")
      .flag("--no-peers", arguments->no_peers, "our side alone")
      .flag("--check", arguments->check, "exit 1 where a bar is missed")
      .flag("--json", arguments->json, "prints JSON")
      .action([arguments] { return bench(*arguments); });
}

}  // namespace mnemo::cli
