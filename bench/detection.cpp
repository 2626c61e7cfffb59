#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <functional>
#include <optional>

#include "base/file_io.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/detection_subject.h"
#include "bench/peers.h"

namespace mnemo::bench {
namespace {

/// Pixels of a training step; one of 800 x 1,216 takes longer than 20 s of one core.
constexpr int64_t kTrainHeight = 480, kTrainWidth = 736;

struct DetectionRow {
  std::string detection_case, job, bars;  ///< bars: the table in the file of bars
  Rounds seconds;
  std::optional<Rounds> stock, best;
};

/// The peers of one case, as installed and at their best; both null if there are none.
struct DetectionPeers {
  std::unique_ptr<PeerProcess> stock, best;
};

/// Starts them with the files that `subject` writes, and notes in `different` how their results differ.
template <class Subject>
DetectionPeers start_for(const BenchArguments& arguments, const std::string& name, const Subject& subject,
                         std::vector<std::string>& different) {
  DetectionPeers peers;
  if (arguments.no_peers) return peers;
  const HandOver hand_over;
  subject.write(hand_over.path(""));
  std::vector<std::string> words = {hand_over.path(""), std::to_string(at::get_num_threads())};
  peers.stock = start_peer(arguments, "detection.py", words, false);
  words.emplace_back("--fused");
  peers.best = start_peer(arguments, "detection.py", words, true);
  const base::Node ours = subject.figures();
  for (const auto& [peer, which] : {std::pair{peers.stock.get(), "stock"}, {peers.best.get(), "best"}}) {
    const std::string line = unlike_figures(ours, peer->ask("check"));
    if (!line.empty()) different.push_back(fmt::format("{}, {}: {}", name, which, line));
  }
  return peers;
}

/// The parts of a run of `mnemo-bench detection`.
class DetectionBench {
 public:
  DetectionBench(const BenchArguments& arguments, Bars& bars) : arguments_(arguments), bars_(bars) {}

  void operators() {
    const OperatorSubject subject;
    const DetectionPeers peers = start_for(arguments_, "operators", subject, different);
    if (!different.empty()) return;
    measure("operators", "RoIAlign", "roi_align", 2, peers, [&] {
      const at::NoGradGuard no_grad;
      subject.roi_align();
    });
    measure("operators", "RoIAlign with gradient", "roi_align_backward", 1, peers, [&] { subject.roi_align_backward(); });
    measure("operators", "NMS by class", "batched_nms", 20, peers, [&] { subject.batched_nms(); });
    measure("operators", "NMS", "nms", 10, peers, [&] { subject.nms(); });
    measure("operators", "matching", "match", 2, peers, [&] { subject.match(); });
  }
  void forward() {
    const DetectorSubject subject(kCocoHeight, kCocoWidth, true, false);
    const DetectionPeers peers = start_for(arguments_, "forward", subject, different);
    if (!different.empty()) return;
    measure("forward", "800 x 1,216 pixels", "forward", 1, peers, [&] { subject.forward(); });
  }
  void train() {
    DetectorSubject subject(kTrainHeight, kTrainWidth, true, false);
    const DetectionPeers peers = start_for(arguments_, "train", subject, different);
    if (!different.empty()) return;
    measure("train", "training step, 480 x 736 pixels", "train", 1, peers, [&] { subject.train(); });
  }
  void coco() {
    const CocoSubject subject;
    const DetectionPeers peers = start_for(arguments_, "coco", subject, different);
    if (!different.empty()) return;
    measure("coco", "evaluation of 5,000 images", "score", 1, peers, [&] { subject.score(); });
  }
  /// Time with the paper's cache over that without.
  void grc() {
    const DetectorSubject without(kCocoHeight, kCocoWidth, false, false), with(kCocoHeight, kCocoWidth, false, true);
    std::vector<double> times;
    for (int64_t round = -1; round < arguments_.repeats; ++round) {
      const double alone = fastest_of(1, [&] { without.forward(); }), both = fastest_of(1, [&] { with.forward(); });
      if (round >= 0) times.push_back(both / alone);
    }
    cost = rounds_of(times);
    bars_.at_most("detection", "grc", cost->median, "grc, forward: time with the cache over that without");
  }

  std::vector<DetectionRow> rows = {};
  std::optional<Rounds> cost = {};  ///< of GRC
  std::vector<std::string> different = {};

 private:
  /// `count` calls in a round; ours and the peers' turn about.
  void measure(const std::string& name, const std::string& job, const std::string& request, int64_t count,
               const DetectionPeers& peers, const std::function<void()>& ours) {
    std::vector<double> times, stock, best;
    const std::string line = fmt::format("{} {}", request, count);
    for (int64_t round = -1; round < arguments_.repeats; ++round) {
      const double mine = fastest_of(1, [&] {
        for (int64_t i = 0; i < count; ++i) ours();
      });
      const double plain = peers.stock ? peers.stock->seconds(line) : 0,
                   tuned = peers.best ? peers.best->seconds(line) : 0;
      if (round < 0) continue;  // warm-up
      times.push_back(mine / static_cast<double>(count));
      stock.push_back(plain / mine);
      best.push_back(tuned / mine);
    }
    DetectionRow row{name, job, "detection." + request, rounds_of(times), {}, {}};
    if (peers.stock) row.stock = rounds_of(stock);
    if (peers.best) row.best = rounds_of(best);
    if (row.best) bars_.at_least(row.bars, "best", row.best->median, fmt::format("{}, {}: times best", name, job));
    rows.push_back(std::move(row));
  }

  const BenchArguments& arguments_;
  Bars& bars_;
};

using DetectionJob = void (DetectionBench::*)();
const std::vector<std::pair<std::string, DetectionJob>> kDetectionCases = {{"operators", &DetectionBench::operators},
                                                                           {"forward", &DetectionBench::forward},
                                                                           {"train", &DetectionBench::train},
                                                                           {"coco", &DetectionBench::coco},
                                                                           {"grc", &DetectionBench::grc}};

BenchReport detection_report(const DetectionBench& measured, bool peers) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"case", "job", "ms, median", "least", "most", "x stock", "x best"},
      {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  base::Node results = base::Node::array();
  for (const DetectionRow& row : measured.rows) {
    table.add_row({row.detection_case, row.job, fmt::format("{:.3f}", row.seconds.median * 1e3),
                   fmt::format("{:.3f}", row.seconds.least * 1e3), fmt::format("{:.3f}", row.seconds.most * 1e3),
                   range_text(row.stock), range_text(row.best)});
    base::Node node = base::Node::table(
        {{"case", row.detection_case}, {"job", row.job}, {"seconds", as_node(row.seconds)}});
    if (row.stock) node.set("times_stock", as_node(*row.stock));
    if (row.best) node.set("times_best", as_node(*row.best));
    results.push_back(std::move(node));
  }
  BenchReport report;
  report.figures = base::Node::table({{"results", std::move(results)}});
  if (!measured.rows.empty()) report.text = table.text() + "\n";
  if (measured.cost) {
    report.figures.set("grc_over_without", as_node(*measured.cost));
    report.text += fmt::format("RetinaNet of 800 x 1,216 pixels with the cache takes {} times that without\n",
                               range_text(measured.cost));
  }
  if (peers && !measured.rows.empty())
    report.text +=
        "x stock, x best: how many times faster than torchvision's operators and RetinaNet on bench/peers/pvt.py in "
        "eager PyTorch, and than pycocotools, as installed, and with fused AdamW and the same two process settings; "
        "median and range, rounds turn about\n";
  return report;
}

}  // namespace

std::vector<std::string> detection_case_names() {
  std::vector<std::string> names;
  for (const auto& [name, job] : kDetectionCases) names.push_back(name);
  return names;
}

BenchReport bench_detection(const BenchArguments& arguments, Bars& bars) {
  DetectionBench bench(arguments, bars);
  for (const auto& [name, job] : kDetectionCases) {
    if (!arguments.wants(name)) continue;
    (bench.*job)();
    if (!bench.different.empty()) return {.differences = bench.different};
  }
  return detection_report(bench, !arguments.no_peers);
}

}  // namespace mnemo::bench
