#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <c10/core/InferenceMode.h>

#include <optional>

#include "base/file_io.h"
#include "base/text_table.h"
#include "cli/bench.h"
#include "cli/bench_peers.h"
#include "models/presets.h"
#include "models/vision_model.h"
#include "train/optimiser.h"
#include "weights/foreign.h"

namespace mnemo::cli {
namespace {

/// A preset that a peer has too, under the names of that format.
struct ImageCase {
  std::string name, format;
};
const std::vector<ImageCase> kImageCases = {{"vit_base_patch32", "timm_vit"}, {"pvt_tiny", "pvt"}, {"swin_tiny", "timm_swin"}};
constexpr int64_t kMostImages = 8;
constexpr double kImageTolerance = 1e-4;  ///< of the largest logit

struct ImageRow {
  std::string image_case, job, bars;
  Rounds seconds;  ///< of a pass or a step
  std::optional<Rounds> stock, best;
};

/// Our side: a model, images, labels.
class ImageSubject {
 public:
  explicit ImageSubject(const ImageCase& image_case)
      : model_(models::read_model_options(base::Node::table({{"preset", image_case.name}})), 1, at::kFloat) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    const std::vector<int64_t> size = model_.options().backbone.image_size();
    pixels_ = at::randn({kMostImages, model_.options().backbone.image_channels(), size[0], size[1]}, generator, at::kFloat);
    labels_ = at::randint(0, model_.num_classes(), {kMostImages, 1}, generator, at::kLong);
    optimiser_ = train::make_optimiser(train::optimiser_types().complete(base::Node::table({{"type", "adamw"}, {"lr", 1e-4}})), model_.parameters());
  }

  /// Puts what a peer reads into the folder.
  void write(const weights::ForeignFormat& format, const std::string& folder) const {
    base::make_folders(folder);
    base::write_file_atomic(base::join_path(folder, "config.json"), base::to_json(format.config(model_.options())));
    weights::write_safetensors(base::join_path(folder, "model.safetensors"), weights::to_theirs(format, model_.parameters().named()));
    weights::write_safetensors(base::join_path(folder, "pixels.safetensors"), {{"pixels", pixels_}, {"labels", labels_.squeeze(1)}});
  }

  at::Tensor logits(int64_t batch) const {
    core::Segment segment;
    segment.pixels = pixels_.narrow(0, 0, batch);
    return model_.logits(model_.forward(segment, model_.initial_state(batch)).hidden);
  }
  double forward(int64_t batch, int64_t count) const {
    const c10::InferenceMode inference;
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) logits(batch);
    return seconds_since(begin);
  }
  double train(int64_t batch, int64_t count) {
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) {
      model_.parameters().zero_grad();
      core::Segment segment;
      segment.pixels = pixels_.narrow(0, 0, batch);
      segment.mode = core::Mode::train;
      model_.nll(model_.forward(segment, model_.initial_state(batch)).hidden, labels_.narrow(0, 0, batch)).mean().backward();
      optimiser_->step(optimiser_->base_lr());
    }
    return seconds_since(begin);
  }
  /// What the peer computes otherwise; empty where it is the same.
  std::string difference(PeerProcess& peer) const {
    const base::Node answer = base::parse_json(peer.ask("check"), "the peer's answer");
    const at::NoGradGuard no_grad;
    const at::Tensor ours = logits(kMostImages).flatten().to(at::kDouble).contiguous();
    const double scale = ours.abs().max().item<double>();
    double worst = 0;
    for (int64_t i = 0; i < ours.numel(); ++i) {
      worst = std::max(worst, std::abs(ours.const_data_ptr<double>()[i] - answer.at("logits").items()[static_cast<size_t>(i)].as_double()) / scale);
    }
    return worst <= kImageTolerance ? "" : fmt::format("logits differ by {:.1e} of the largest", worst);
  }

 private:
  models::VisionModel model_;
  at::Tensor pixels_, labels_;
  std::unique_ptr<train::Optimiser> optimiser_;
};

std::string image_text(const std::vector<ImageRow>& rows, bool peers) {
  using Align = base::TextTable::Align;
  base::TextTable table({"case", "job", "ms, median", "least", "most", "x stock", "x best"},
                        {Align::left, Align::left, Align::right, Align::right, Align::right, Align::right, Align::right});
  for (const ImageRow& m : rows) {
    table.add_row({m.image_case, m.job, fmt::format("{:.2f}", m.seconds.median * 1e3), fmt::format("{:.2f}", m.seconds.least * 1e3),
                   fmt::format("{:.2f}", m.seconds.most * 1e3), range_text(m.stock), range_text(m.best)});
  }
  std::string text = table.text() + "\n";
  if (peers) {
    text += "x stock, x best: how many times faster than timm's model (PVT: benchmarks/peers/pvt.py) in eager PyTorch as installed, and with fused AdamW and the same two process "
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
    ImageSubject subject(image_case);
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
    const auto measure = [&](const std::string& job, const std::string& table, const char* request, int64_t batch, int64_t count, const auto& ours) {
      std::vector<double> times, times_stock, times_best;
      const std::string line = fmt::format("{} {} {}", request, batch, count);
      for (int64_t round = -1; round < arguments.repeats; ++round) {
        const double mine = ours(batch, count), plain = stock ? stock->seconds(line) : 0, tuned = best ? best->seconds(line) : 0;
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
    measure("training step of 8 images", "train_8", "train", 8, 1, [&](int64_t batch, int64_t count) { return subject.train(batch, count); });
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

}  // namespace mnemo::cli
