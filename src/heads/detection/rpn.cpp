#include "heads/detection/rpn.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/detection/matching.h"
#include "ops/detection/nms.h"

namespace mnemo::heads {
namespace {

constexpr double kRpnStartStd = 0.01;
constexpr ops::BoxWeights kRpnWeights = {1, 1, 1, 1};

/// 1 of matched anchors, 0 of background, -1 of those between.
at::Tensor labels_of(const at::Tensor& matches) {
  return at::where(matches >= 0, at::ones_like(matches),
                   at::where(matches == ops::kBackground, at::zeros_like(matches), -at::ones_like(matches)));
}

}  // namespace

Rpn::Rpn(const RpnOptions& options, const layers::Scope& scope) : anchors_(options.anchors) {
  base::require(!anchors_.levels.empty(), "{}", "RPN: expected anchors of at least one level");
  const auto start = layers::normal(kRpnStartStd);
  const auto anchors = static_cast<int64_t>(anchors_.levels[0].sizes.size() * anchors_.levels[0].ratios.size());
  const int64_t width = options.in_channels;
  for (int64_t k = 0; k < options.num_convs; ++k) convs_.emplace_back(scope / "conv" / k, width, width, 3, 1, start);
  cls_logits_ = Convolution(scope / "cls_logits", width, anchors, 1, 1, start);
  box_reg_ = Convolution(scope / "box_reg", width, anchors * 4, 1, 1, start);
}

Rpn::Output Rpn::operator()(std::span<const at::Tensor> maps, PixelSize image, RealLevels real) const {
  Output out;
  out.real.assign(real.begin(), real.end());
  std::vector<at::Tensor> h(maps.begin(), maps.end());
  for (const Convolution& layer : convs_) {
    for (size_t l = 0; l < h.size(); ++l) h[l] = keep_real(h[l], real, l);
    h = layer(h);
    for (at::Tensor& map : h) map = at::relu(map);
  }
  out.objectness = cls_logits_(h);
  out.deltas = box_reg_(h);
  out.anchors = make_anchors(anchors_, image, maps);
  return out;
}

std::vector<Proposals> rpn_proposals(const RpnOptions& options, const Rpn::Output& output,
                                     std::span<const PixelSize> image_sizes, const ProposalCounts& counts) {
  const at::NoGradGuard no_grad;
  std::vector<Proposals> all;
  for (size_t b = 0; b < image_sizes.size(); ++b) {
    const auto image = static_cast<int64_t>(b);
    std::vector<at::Tensor> boxes, logits, levels;
    for (size_t l = 0; l < output.anchors.size(); ++l) {
      const at::Tensor real = real_anchors(output.real, l, image, output.objectness[l].size(1)),
                       anchors = rows_at(output.anchors[l], real);
      const at::Tensor flat = rows_at(flat_places(output.objectness[l].slice(0, image, image + 1), 1).flatten(), real),
                       deltas = rows_at(flat_places(output.deltas[l].slice(0, image, image + 1), 4)[0], real);
      const at::Tensor best = ops::falling_order(flat).slice(0, 0, counts.before_nms);
      boxes.push_back(
          ops::box_decode(anchors.index_select(0, best), deltas.index_select(0, best), kRpnWeights, kBoxClip)
              .squeeze(1));
      logits.push_back(flat.index_select(0, best));
      levels.push_back(at::full({best.size(0)}, static_cast<int64_t>(l), best.options()));
    }
    const at::Tensor clipped = ops::clip_boxes(at::cat(boxes, 0), static_cast<double>(image_sizes[b].first),
                                               static_cast<double>(image_sizes[b].second)),
                     score = at::sigmoid(at::cat(logits, 0)), level = at::cat(levels, 0);
    const at::Tensor good = at::nonzero(large_enough(clipped, options.min_size) & (score >= options.score_thresh))
                                .squeeze(1);
    const at::Tensor kept = ops::nms(clipped.index_select(0, good), score.index_select(0, good),
                                     level.index_select(0, good), options.nms_thresh)
                                .slice(0, 0, counts.after_nms);
    const at::Tensor chosen = good.index_select(0, kept);
    all.push_back({clipped.index_select(0, chosen), score.index_select(0, chosen)});
  }
  return all;
}

Rpn::Losses rpn_losses(const RpnOptions& options, const Rpn::Output& output, std::span<const ObjectTargets> targets,
                       const DrawOrder& order) {
  const at::Tensor all_anchors = at::cat(output.anchors, 0), all_logits = flat_levels(output.objectness, 1).squeeze(2),
                   all_deltas = flat_levels(output.deltas, 4);
  std::vector<at::Tensor> sampled, truth, found, wanted;
  for (size_t b = 0; b < targets.size(); ++b) {
    const auto image = static_cast<int64_t>(b);
    const at::Tensor real = all_real_anchors(output.anchors, output.real, image, output.objectness[0].size(1)),
                     anchors = rows_at(all_anchors, real), logits = rows_at(all_logits.select(0, image), real),
                     deltas = rows_at(all_deltas.select(0, image), real);
    const at::Tensor matches = ops::match_boxes(targets[b].boxes, anchors, {options.fg_iou, options.bg_iou, true});
    const at::Tensor labels = labels_of(matches);
    // One after the other, as both draw from one generator.
    const at::Tensor others = order(image, false, (labels == 0).sum().item<int64_t>()),
                     objects = order(image, true, (labels == 1).sum().item<int64_t>());
    const ops::BalancedSample sample = ops::sample_balanced(labels, options.batch_size_per_image,
                                                            options.positive_fraction, objects, others);
    const at::Tensor chosen = at::nonzero(sample.positive | sample.negative).squeeze(1),
                     positive = at::nonzero(sample.positive).squeeze(1);
    sampled.push_back(logits.index_select(0, chosen));
    truth.push_back(labels.index_select(0, chosen).to(logits.scalar_type()));
    found.push_back(deltas.index_select(0, positive));
    wanted.push_back(ops::box_encode(anchors.index_select(0, positive),
                                     targets[b].boxes.index_select(0, matches.index_select(0, positive)), kRpnWeights));
  }
  const at::Tensor all = at::cat(sampled, 0);
  const auto count = static_cast<double>(std::max<int64_t>(1, all.size(0)));
  return {at::binary_cross_entropy_with_logits(all, at::cat(truth, 0), {}, {}, at::Reduction::Sum) / count,
          box_loss_sum(options.box_loss, at::cat(found, 0), at::cat(wanted, 0), options.beta) / count};
}

}  // namespace mnemo::heads
