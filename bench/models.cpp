#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <optional>
#include <tuple>

#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "bench/limits.h"
#include "bench/peers.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kNear = 64, kMiddle = 1024, kFar = 16384;  ///< positions in generation

struct ModelRow {
  std::string bench_case, job, bars;  ///< bars: the table in the file of bars
  Rounds seconds;                     ///< per training step, or per token
  std::optional<Rounds> stock, best;  ///< how many times as fast as the peer, which computes in float32
  std::optional<Rounds> autocast;     ///< as the better peer in bf16 by autocast
  std::optional<Rounds> share;        ///< of G, the fastest matrix product of the same rounds
  std::optional<double> allocated;    ///< bytes of tensors per token
};

/// The results of a whole run.
struct ModelResults {
  std::vector<ModelRow> measured;
  std::optional<double> flat;           ///< ABC: seconds per token at the far position relative to the near one
  std::optional<double> cache_speedup;  ///< evaluation: speed with the cache relative to recomputing the context
  int64_t window = 0;                   ///< tokens of that context
  double product = 0;                   ///< G, best of all rounds
};

/// Alternates between ours and the peers, so that changes of the machine's speed affect all alike; ratios are medians
/// over the rounds. Each round ends with `after`. `autocast`: the same request in bf16, if it is asked.
ModelRow measure_job(
    int64_t repeats, int64_t count, const BenchPeers& peers, const std::string& request,
    const std::function<double()>& ours, const std::function<void()>& after = [] {}, const std::string& autocast = {}) {
  std::vector<double> times, stock, best, rounded;
  const bool in_bf16 = peers.best && !autocast.empty();
  for (int64_t round = -1; round < repeats; ++round) {
    const double mine = ours();
    const double theirs = peers.stock ? peers.stock->seconds(request) : 0,
                 tuned = peers.best ? peers.best->seconds(request) : 0,
                 cast = in_bf16 ? peers.best->seconds(autocast) : 0;
    after();
    if (round < 0) continue;  // warm-up
    times.push_back(mine / static_cast<double>(count));
    stock.push_back(theirs / mine);
    best.push_back(tuned / mine);
    rounded.push_back(cast / mine);
  }
  ModelRow measured;
  measured.seconds = rounds_of(times);
  if (peers.stock) measured.stock = rounds_of(stock);
  if (peers.best) measured.best = rounds_of(best);
  if (in_bf16) measured.autocast = rounds_of(rounded);
  return measured;
}

/// One token at a time, alternating between near and far: we claim their ratio, which is smaller than the noise over
/// time.
double far_over_near(BenchSubject& subject, int64_t tokens) {
  std::vector<double> near, far;
  for (int64_t i = 0; i < tokens; ++i) {
    near.push_back(subject.generate(kNear, 1));
    far.push_back(subject.generate(kFar, 1));
  }
  return median(far) / median(near);
}

void measure_case(const BenchArguments& arguments, const BenchCase& bench_case, const BenchPeers& peers,
                  BenchSubject& subject, ProductLimit& product, ModelResults& results) {
  auto add = [&](const std::string& job, const std::string& bars, ModelRow measured) -> ModelRow& {
    measured.bench_case = bench_case.name;
    measured.job = job;
    measured.bars = bars;
    return results.measured.emplace_back(std::move(measured));
  };
  const int64_t steps = bench_case.dim < 128 ? 20 : 1;
  const double products = subject.train_products();
  for (const auto& [precision, name, bars] :
       {std::tuple{ops::ProductPrecision::float32, "training step", "train." + bench_case.name},
        {ops::ProductPrecision::bf16, "training step in bf16", std::string("train_bf16")}}) {
    double best = 0;
    const std::string request = fmt::format("train {}", steps);
    ModelRow& row = add(
        name, bars,
        measure_job(
            arguments.repeats, steps, peers, request,
            [&, chosen = precision] { return subject.train(steps, chosen); },
            [&] { best = std::max(best, product.measure()); },
            precision == ops::ProductPrecision::bf16 ? request + " bf16" : std::string()));
    row.share = share_of(products / best, row.seconds);
    results.product = std::max(results.product, best);
  }
  constexpr int64_t kTokens = 64;
  for (const int64_t position : {kNear, kMiddle, kFar}) {
    ModelRow& measured = add(
        fmt::format("token at {}", position), "generate",
        measure_job(arguments.repeats, kTokens, peers, fmt::format("generate {} {}", position, kTokens),
                    [&] { return subject.generate(position, kTokens); }));
    measured.allocated = subject.allocated(position);
  }
  if (bench_case.slots > 0) results.flat = far_over_near(subject, 300 * arguments.repeats);
  if (bench_case.evaluation_segment == 0) return;
  const ModelRow cached = add(
      "evaluation, a token", "evaluate",
      measure_job(arguments.repeats, subject.evaluation_tokens(), peers,
                  fmt::format("evaluate {}", bench_case.evaluation_segment), [&] { return subject.evaluate(); }));
  const ModelRow anew = add("the same without cache", "", measure_job(arguments.repeats, bench_case.batch, {}, {}, [&] {
                              return subject.recompute();
                            }));
  results.cache_speedup = anew.seconds.median / cached.seconds.median;
  results.window = subject.window();
}

void compare_with_bars(const ModelResults& results, Bars& bars) {
  std::optional<double> allocated;  // for the same case, at the middle position
  for (const ModelRow& row : results.measured) {
    const std::string what = fmt::format("{}, {}", row.bench_case, row.job);
    if (row.share) bars.at_least(row.bars, "share", row.share->median, what + ", share of G");
    if (row.stock) bars.at_least(row.bars, "stock", row.stock->median, what + ", times stock");
    if (row.best) bars.at_least(row.bars, "best", row.best->median, what + ", times best");
    if (row.autocast) bars.at_least(row.bars, "autocast", row.autocast->median, what + ", times autocast");
    if (row.job == fmt::format("token at {}", kMiddle)) allocated = row.allocated;
    if (allocated && row.job == fmt::format("token at {}", kFar)) {
      const double growth = *allocated > 0 ? *row.allocated / *allocated : *row.allocated > 0 ? INFINITY : 1.0;
      bars.at_most("flat", "allocated", growth,
                   fmt::format("{}: bytes that a token allocates over those at {}", what, kMiddle));
    }
  }
  if (results.flat)
    bars.at_most("flat", "abc", *results.flat, fmt::format("abc: time of a token at {} over one at {}", kFar, kNear));
}

base::Node model_figures(const ModelResults& results) {
  base::Node rows = base::Node::array();
  for (const ModelRow& m : results.measured) {
    base::Node row = base::Node::table({{"case", m.bench_case}, {"job", m.job}, {"seconds", as_node(m.seconds)}});
    if (m.stock) row.set("times_stock", as_node(*m.stock));
    if (m.best) row.set("times_best", as_node(*m.best));
    if (m.autocast) row.set("times_autocast", as_node(*m.autocast));
    if (m.share) row.set("share_of_product", as_node(*m.share));
    if (m.allocated) row.set("allocated", *m.allocated);
    rows.push_back(row);
  }
  base::Node node = base::Node::table({{"product", results.product}, {"results", rows}});
  if (results.flat) node.set("abc_16384_over_64", *results.flat);
  if (results.cache_speedup) node.set("cache_speedup", *results.cache_speedup);
  return node;
}

std::string model_text(const ModelResults& results, bool peers) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"case", "job", "ms, median", "least", "most", "share of G", "x stock", "x best", "x autocast",
       "KB allocated"},
      {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right, Align::right,
       Align::right, Align::right});
  for (const ModelRow& m : results.measured) {
    table.add_row({m.bench_case, m.job, fmt::format("{:.3f}", m.seconds.median * 1e3),
                   fmt::format("{:.3f}", m.seconds.least * 1e3), fmt::format("{:.3f}", m.seconds.most * 1e3),
                   range_text(m.share), range_text(m.stock), range_text(m.best), range_text(m.autocast),
                   m.allocated ? fmt::format("{:.1f}", *m.allocated / 1e3) : std::string()});
  }
  std::string text = fmt::format("G {:.1f} GFLOP/s, the best of all rounds\n\n{}\n", results.product / 1e9,
                                 table.text());
  if (results.flat)
    text += fmt::format("ABC: a token at {} takes {:.3f} times one at {}\n", kFar, *results.flat, kNear);
  if (results.cache_speedup) {
    text += fmt::format(
        "evaluation: {:.0f} times as fast with the segment cache as with a context of {} tokens computed anew for "
        "each\n",
        *results.cache_speedup, results.window);
  }
  text +=
      "share of G: of the best float32 product in the same rounds; a step has three times the products of a forward "
      "pass\n";
  if (peers) {
    text +=
        "x stock, x best: how many times faster than the same model in eager PyTorch as installed, and with fused "
        "AdamW and the same "
        "two process settings, both in float32; x autocast: than the latter in bf16 by autocast; median and range, rounds "
        "turn about\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> model_case_names() {
  std::vector<std::string> names;
  for (const BenchCase& bench_case : bench_cases()) names.push_back(bench_case.name);
  return names;
}

BenchReport bench_models(const BenchArguments& arguments, Bars& bars) {
  ModelResults results;
  ProductLimit product;
  for (const BenchCase& bench_case : bench_cases()) {
    if (!arguments.wants(bench_case.name)) continue;
    BenchSubject subject(bench_case);
    BenchPeers peers;
    if (!arguments.no_peers) {
      peers = start_peers(arguments, bench_case, subject);
      BenchReport different{.differences = differences(peers, bench_case, subject)};
      if (!different.differences.empty()) return different;
    }
    measure_case(arguments, bench_case, peers, subject, product, results);
  }
  compare_with_bars(results, bars);
  return {.figures = model_figures(results), .text = model_text(results, !arguments.no_peers)};
}

}  // namespace mnemo::bench
