#include <fmt/format.h>
#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "base/nearest.h"
#include "base/text_table.h"
#include "cli/application.h"
#include "cli/bench_case.h"
#include "cli/bench_peers.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/machine.h"
#include "cli/output.h"

namespace mnemo::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> cases;
  std::string peers = "benchmarks/peers";
  std::string python = "python3";
  std::string bars = "benchmarks/bars.toml";
  int64_t repeats = 7;
  bool no_peers = false, json = false, check = false;
};

constexpr int64_t kNear = 64, kMiddle = 1024, kFar = 16384;  ///< positions of generation

/// Median, minimum and maximum of the rounds.
struct Rounds {
  double median = 0, least = 0, most = 0;
};

struct BenchRow {
  std::string bench_case, job, bars;  ///< bars: the table of the bars file
  Rounds seconds;                     ///< of a step, or of a token
  std::optional<Rounds> stock, best;  ///< times as fast as the peer
  std::optional<double> allocated;    ///< bytes of tensors a token
};

/// The whole of a run.
struct BenchResults {
  std::vector<BenchRow> measured;
  std::optional<double> flat;           ///< ABC: seconds a token far out over near by
  std::optional<double> cache_speedup;  ///< evaluation: with the cache over recomputing the context
  int64_t window = 0;                   ///< tokens of that context
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Rounds rounds_of(const std::vector<double>& values) {
  return {median(values), *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end())};
}

/// Ours and the peers turn about, so that the machine's moods meet all alike; ratios are medians of the rounds' ratios.
BenchRow measure(int64_t repeats, int64_t count, const BenchPeers& peers, const std::string& request, const std::function<double()>& ours) {
  std::vector<double> times, stock, best;
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = ours();
    const double theirs = peers.stock ? peers.stock->seconds(request) : 0, tuned = peers.best ? peers.best->seconds(request) : 0;
    if (round < 0) continue;  // warm-up
    times.push_back(mine / static_cast<double>(count));
    stock.push_back(theirs / mine);
    best.push_back(tuned / mine);
  }
  BenchRow measured;
  measured.seconds = rounds_of(times);
  if (peers.stock) measured.stock = rounds_of(stock);
  if (peers.best) measured.best = rounds_of(best);
  return measured;
}

/// One by one, near and far turn about: their ratio is the claim, and it is smaller than the noise between seconds.
double far_over_near(BenchSubject& subject, int64_t tokens) {
  std::vector<double> near, far;
  for (int64_t i = 0; i < tokens; ++i) {
    near.push_back(subject.generate(kNear, 1));
    far.push_back(subject.generate(kFar, 1));
  }
  return median(far) / median(near);
}

void measure_case(const BenchArguments& arguments, const BenchCase& bench_case, const BenchPeers& peers, BenchSubject& subject,
                  BenchResults& results) {
  auto add = [&](const std::string& job, const std::string& bars, BenchRow measured) -> BenchRow& {
    measured.bench_case = bench_case.name;
    measured.job = job;
    measured.bars = bars;
    return results.measured.emplace_back(std::move(measured));
  };
  const int64_t steps = bench_case.dim < 128 ? 20 : 1;
  add("training step", "train",
      measure(arguments.repeats, steps, peers, fmt::format("train {}", steps), [&] { return subject.train(steps); }));
  constexpr int64_t kTokens = 64;
  for (const int64_t position : {kNear, kMiddle, kFar}) {
    BenchRow& measured = add(fmt::format("token at {}", position), "generate",
                             measure(arguments.repeats, kTokens, peers, fmt::format("generate {} {}", position, kTokens),
                                     [&] { return subject.generate(position, kTokens); }));
    measured.allocated = subject.allocated(position);
  }
  if (bench_case.slots > 0) results.flat = far_over_near(subject, 300 * arguments.repeats);
  if (bench_case.evaluation_segment == 0) return;
  const BenchRow cached = add("evaluation, a token", "evaluate",
                              measure(arguments.repeats, subject.evaluation_tokens(), peers,
                                      fmt::format("evaluate {}", bench_case.evaluation_segment), [&] { return subject.evaluate(); }));
  const BenchRow anew = add("the same without cache", "",
                            measure(arguments.repeats, bench_case.batch, {}, {}, [&] { return subject.recompute(); }));
  results.cache_speedup = anew.seconds.median / cached.seconds.median;
  results.window = subject.window();
}

std::vector<std::string> missed_bars(const std::string& path, const BenchResults& results) {
  const base::Node bars = base::read_config_file(path);
  auto bar_of = [&](const std::string& table, const char* key) -> std::optional<double> {
    const base::Node* section = bars.find(table);
    const base::Node* bar = section == nullptr ? nullptr : section->find(key);
    return bar == nullptr ? std::nullopt : std::optional(bar->as_double());
  };
  std::vector<std::string> missed;
  std::optional<double> allocated;  // of the same case, at the middle position
  for (const BenchRow& measured : results.measured) {
    auto check = [&](const char* peer, const std::optional<Rounds>& ratio) {
      const std::optional<double> bar = bar_of(measured.bars, peer);
      if (!bar || !ratio || ratio->median >= *bar) return;
      missed.push_back(fmt::format("{}, {}: {:.2f} times {}, expected at least {:.2f}", measured.bench_case, measured.job,
                                   ratio->median, peer, *bar));
    };
    check("stock", measured.stock);
    check("best", measured.best);
    if (measured.job == fmt::format("token at {}", kMiddle)) allocated = measured.allocated;
    const std::optional<double> growth = bar_of("flat", "allocated");
    if (growth && allocated && measured.job == fmt::format("token at {}", kFar) && *measured.allocated > *growth * *allocated) {
      missed.push_back(fmt::format("{}: a token at {} allocates {:.0f} bytes, one at {} {:.0f}, expected at most {:.2f} times as many",
                                   measured.bench_case, kFar, *measured.allocated, kMiddle, *allocated, *growth));
    }
  }
  const std::optional<double> flat = bar_of("flat", "abc");
  if (flat && results.flat && *results.flat > *flat) {
    missed.push_back(fmt::format("abc: a token at {} takes {:.3f} times one at {}, expected at most {:.2f}", kFar, *results.flat, kNear,
                                 *flat));
  }
  return missed;
}

std::string bench_command(const BenchArguments& arguments) {
  const BenchArguments usual;
  std::string line = "mnemo bench";
  if (common_options().threads > 0) line += fmt::format(" --threads {}", common_options().threads);
  line += fmt::format(" --repeats {}", arguments.repeats);
  for (const std::string& name : arguments.cases) line += " --case " + shell_quoted(name);
  if (arguments.peers != usual.peers) line += " --peers " + shell_quoted(arguments.peers);
  if (arguments.python != usual.python) line += " --python " + shell_quoted(arguments.python);
  if (arguments.bars != usual.bars) line += " --bars " + shell_quoted(arguments.bars);
  if (arguments.no_peers) line += " --no-peers";
  if (arguments.check) line += " --check";
  return line;
}

base::Node as_node(const Rounds& rounds) {
  return base::Node::table({{"median", rounds.median}, {"least", rounds.least}, {"most", rounds.most}});
}

base::Node as_node(const BenchArguments& arguments, const BenchResults& results, const std::vector<std::string>& missed) {
  base::Node rows = base::Node::array();
  for (const BenchRow& m : results.measured) {
    base::Node row = base::Node::table({{"case", m.bench_case}, {"job", m.job}, {"seconds", as_node(m.seconds)}});
    if (m.stock) row.set("times_stock", as_node(*m.stock));
    if (m.best) row.set("times_best", as_node(*m.best));
    if (m.allocated) row.set("allocated", *m.allocated);
    rows.push_back(row);
  }
  base::Node node = base::Node::table({{"command", bench_command(arguments)}, {"machine", to_node(this_machine())},
                                       {"threads", at::get_num_threads()}, {"results", rows}});
  if (results.flat) node.set("abc_16384_over_64", *results.flat);
  if (results.cache_speedup) node.set("cache_speedup", *results.cache_speedup);
  base::Node missed_node = base::Node::array();
  for (const std::string& line : missed) missed_node.push_back(line);
  node.set("missed", missed_node);
  return node;
}

void print_table(const BenchArguments& arguments, const BenchResults& results) {
  using Align = base::TextTable::Align;
  base::TextTable table({"case", "job", "ms, median", "least", "most", "x stock", "x best", "KB allocated"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right});
  auto ratio = [](const std::optional<Rounds>& value) {
    return value ? fmt::format("{:.2f} ({:.2f}-{:.2f})", value->median, value->least, value->most) : std::string();
  };
  for (const BenchRow& m : results.measured) {
    table.add_row({m.bench_case, m.job, fmt::format("{:.3f}", m.seconds.median * 1e3), fmt::format("{:.3f}", m.seconds.least * 1e3),
                   fmt::format("{:.3f}", m.seconds.most * 1e3), ratio(m.stock), ratio(m.best),
                   m.allocated ? fmt::format("{:.1f}", *m.allocated / 1e3) : std::string()});
  }
  const Machine machine = this_machine();
  print(fmt::format("{}, {} cores, {}; {} thread(s), median of {}\n\n{}\n", machine.cpu, machine.cores, machine.capability,
                    at::get_num_threads(), arguments.repeats, table.text()));
  if (results.flat) print(fmt::format("ABC: a token at {} takes {:.3f} times one at {}\n", kFar, *results.flat, kNear));
  if (results.cache_speedup) {
    print(fmt::format("evaluation: {:.0f} times as fast with the segment cache as with a context of {} tokens computed anew for each\n",
                      *results.cache_speedup, results.window));
  }
  if (!arguments.no_peers) {
    print("x stock, x best: how many times faster than the same model in eager PyTorch as installed, and with fused AdamW and the same "
          "two process settings; median and range, rounds turn about\n");
  }
}

int bench(const BenchArguments& arguments) {
  base::require(arguments.repeats >= 1, "--repeats: expected at least 1, found {}", arguments.repeats);
  std::vector<std::string> names;
  for (const BenchCase& bench_case : bench_cases()) names.push_back(bench_case.name);
  for (const std::string& name : arguments.cases) {
    base::require(std::find(names.begin(), names.end(), name) != names.end(), "--case: unknown case '{}'{}", name,
                  base::suggestion(name, names));
  }
  BenchResults results;
  for (const BenchCase& bench_case : bench_cases()) {
    const bool wanted = arguments.cases.empty() ||
                        std::find(arguments.cases.begin(), arguments.cases.end(), bench_case.name) != arguments.cases.end();
    if (!wanted) continue;
    BenchSubject subject(bench_case);
    BenchPeers peers;
    if (!arguments.no_peers) {
      peers = start_peers(arguments.peers, arguments.python, bench_case, subject);
      const std::vector<std::string> different = differences(peers, bench_case, subject);
      for (const std::string& line : different) print(fmt::format("not the same model: {}\n", line));
      if (!different.empty()) return kAnswerIsNo;
    }
    measure_case(arguments, bench_case, peers, subject, results);
  }
  const std::vector<std::string> missed = arguments.check ? missed_bars(arguments.bars, results) : std::vector<std::string>();
  if (arguments.json) {
    print_json(as_node(arguments, results, missed));
  } else {
    print_table(arguments, results);
    for (const std::string& line : missed) print(fmt::format("missed: {}\n", line));
  }
  return missed.empty() ? kDone : kAnswerIsNo;
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  std::string names;
  for (const BenchCase& bench_case : bench_cases()) names += (names.empty() ? "" : ", ") + bench_case.name;
  Command(app, "bench", "measures training, generation and evaluation, turn about with the same models in eager PyTorch")
      .option("--case", arguments->cases, "NAME", names + "; may be repeated (all)")
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
