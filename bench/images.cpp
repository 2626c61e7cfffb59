#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <optional>

#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/image.h"
#include "bench/peers.h"
#include "models/presets.h"

namespace mnemo::bench {
namespace {

/// A preset that a peer has too, under the names of this format.
struct ImageCase {
  std::string name, format;
};
const std::vector<ImageCase> kImageCases = {
    {"vit_base_patch32", "timm_vit"}, {"pvt_tiny", "pvt"}, {"swin_tiny", "timm_swin"}};

struct ImageRow {
  std::string image_case, job, bars;
  Rounds seconds;  ///< per forward pass or training step
  std::optional<Rounds> stock, best;
};

std::string image_text(const std::vector<ImageRow>& rows, bool peers) {
  using Align = base::TextTable::Align;
  base::TextTable table(
      {"case", "job", "ms, median", "least", "most", "x stock", "x best"},
      {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  for (const ImageRow& m : rows) {
    table.add_row({m.image_case, m.job, fmt::format("{:.2f}", m.seconds.median * 1e3),
                   fmt::format("{:.2f}", m.seconds.least * 1e3), fmt::format("{:.2f}", m.seconds.most * 1e3),
                   range_text(m.stock), range_text(m.best)});
  }
  std::string text = table.text() + "\n";
  if (peers) {
    text +=
        "x stock, x best: how many times faster than timm's model (PVT: bench/peers/pvt.py) in eager PyTorch as "
        "installed, and with fused AdamW and the same two process "
        "settings; median and range, rounds turn about\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> image_case_names() {
  std::vector<std::string> names;
  for (const ImageCase& image_case : kImageCases) names.push_back(image_case.name);
  return names;
}

BenchReport bench_images(const BenchArguments& arguments, Bars& bars) {
  std::vector<ImageRow> rows;
  for (const ImageCase& image_case : kImageCases) {
    if (!arguments.wants(image_case.name)) continue;
    ImageSubject subject(models::read_model_options(base::Node::table({{"preset", image_case.name}})));
    std::unique_ptr<PeerProcess> stock, best;
    if (!arguments.no_peers) {
      const HandOver hand_over;
      subject.write(weights::foreign_format(image_case.format), hand_over.path("model"));
      std::vector<std::string> words = {hand_over.path("model"), std::to_string(at::get_num_threads())};
      stock = start_peer(arguments, "images.py", words, false);
      words.push_back("--fused");
      best = start_peer(arguments, "images.py", words, true);
      BenchReport different;
      for (const auto& [peer, name] : {std::pair{stock.get(), "stock"}, {best.get(), "best"}}) {
        const std::string line = subject.difference(*peer);
        if (!line.empty()) different.differences.push_back(fmt::format("{}, {}: {}", image_case.name, name, line));
      }
      if (!different.differences.empty()) return different;
    }
    const auto measure = [&](const std::string& job, const std::string& table, const char* request, int64_t batch,
                             int64_t count, const auto& ours) {
      std::vector<double> times, times_stock, times_best;
      const std::string line = fmt::format("{} {} {}", request, batch, count);
      for (int64_t round = -1; round < arguments.repeats; ++round) {
        const double mine = ours(batch, count), plain = stock ? stock->seconds(line) : 0,
                     tuned = best ? best->seconds(line) : 0;
        if (round < 0) continue;  // warm-up
        times.push_back(mine / static_cast<double>(count));
        times_stock.push_back(plain / mine);
        times_best.push_back(tuned / mine);
      }
      ImageRow row{image_case.name, job, table, rounds_of(times), {}, {}};
      if (stock) row.stock = rounds_of(times_stock);
      if (best) row.best = rounds_of(times_best);
      const std::string what = fmt::format("{}, {}", row.image_case, row.job);
      if (row.best) bars.at_least("images." + table, "best", row.best->median, what + ", times best");
      rows.push_back(std::move(row));
    };
    const auto forward = [&](int64_t batch, int64_t count) { return subject.forward(batch, count); };
    measure("forward of 1 image", "forward_1", "forward", 1, 8, forward);
    measure("forward of 8 images", "forward_8", "forward", 8, 2, forward);
    measure("training step of 8 images", "train_8", "train", 8, 1,
            [&](int64_t batch, int64_t count) { return subject.train(batch, count); });
  }
  base::Node results = base::Node::array();
  for (const ImageRow& m : rows) {
    base::Node row = base::Node::table({{"case", m.image_case}, {"job", m.job}, {"seconds", as_node(m.seconds)}});
    if (m.stock) row.set("times_stock", as_node(*m.stock));
    if (m.best) row.set("times_best", as_node(*m.best));
    results.push_back(row);
  }
  return {.figures = base::Node::table({{"results", results}}), .text = image_text(rows, !arguments.no_peers)};
}

}  // namespace mnemo::bench
