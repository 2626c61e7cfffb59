#include "models/vision_model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <type_traits>
#include <variant>

#include "base/error.h"
#include "models/make_attention.h"

namespace mnemo::models {
namespace {

std::unique_ptr<backbones::VisionBackbone> make_backbone(const VisionOptions& options, const backbones::VisionBuild& build) {
  return std::visit(
      [&](const auto& chosen) -> std::unique_ptr<backbones::VisionBackbone> {
        return std::make_unique<typename std::decay_t<decltype(chosen)>::Backbone>(chosen, build);
      },
      options);
}

double init_std_of(const VisionOptions& options) {
  return std::visit([](const auto& chosen) { return chosen.init_std; }, options);
}

}  // namespace

VisionModel::VisionModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget, at::Device device)
    : options_(options), parameters_(seed, dtype, budget, device) {
  base::ensure(options.backbone.is_vision(), "'{}' is no backbone of images", options.backbone.type);
  const layers::Scope root = parameters_.root();
  const bool whole = options.kind == "model";
  const auto attention = [&](const base::Node& core, const core::AttentionBuild& build) { return make_attention(core, options.memory, build); };
  backbone_ = make_backbone(options.backbone.vision, {root / "backbone", attention, whole});
  if (!whole) return;
  const auto head = base::read_typed_options<heads::ClassificationOptions>(options.head);
  base::require(head.pool != "cls" || backbone_->num_class_tokens() > 0,
                "model: head.pool = \"cls\" reads a class token, but backbone.type = \"{}\" has none in these options; expected \"mean\"",
                options.backbone.type);
  head_ = std::make_unique<heads::Classification>(head, root / "head", backbone_->dim(), init_std_of(options.backbone.vision));
}

core::State VisionModel::initial_state(int64_t batch) const {
  return committed_.apply(core::State::list({{"layers", backbone_->initial_state(batch)}}));
}

core::StepResult VisionModel::forward(const core::Segment& segment, const core::State& state, const core::AttentionObserver& observe,
                                      const backbones::HiddenObserver& hidden) const {
  base::require(segment.part.starts && segment.part.ends, "[model] an image has no parts: expected part.starts and part.ends to be true");
  base::require(head_ == nullptr ? segment.rows.defined() : segment.pixels.defined(), "[model] backbone.type = \"{}\" takes {}, found {}",
                options_.backbone.type, head_ == nullptr ? "rows [B,T,D]" : "pixels [B,C,H,W]",
                segment.tokens.defined() ? "tokens" : segment.rows.defined() ? "rows" : segment.pixels.defined() ? "pixels" : "nothing");
  backbones::VisionResult result = backbone_->forward({segment.pixels, segment.rows, segment.mode, observe, hidden}, state.child("layers"));
  core::StepResult step;
  step.hidden = head_ == nullptr ? result.rows : pooled(result);
  step.state = core::State::list({{"layers", std::move(result.state)}});
  return step;
}

at::Tensor VisionModel::pooled(const backbones::VisionResult& result) const {
  if (head_->reads_first_row()) return result.rows.narrow(1, 0, 1);
  return heads::Classification::mean(result.rows.narrow(1, result.rows.size(1) - result.grid.size(), result.grid.size()), {});
}

at::Tensor VisionModel::logits(const at::Tensor& hidden) const {
  RECORD_USER_SCOPE("head");
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  return head_->logits(hidden);
}

at::Tensor VisionModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  RECORD_USER_SCOPE("head");
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  return head_->nll(hidden, targets);
}

std::vector<core::Gauge> VisionModel::gauges() const {
  std::vector<core::Gauge> all;
  for (int64_t layer = 0; layer < backbone_->num_layers(); ++layer) {
    const auto* inspectable = dynamic_cast<const core::Inspectable*>(&backbone_->attention(layer));
    if (inspectable == nullptr) continue;
    for (core::Gauge& gauge : inspectable->gauges()) all.push_back({fmt::format("layers.{}.{}", layer, gauge.name), std::move(gauge.values)});
  }
  return all;
}

int64_t VisionModel::num_classes() const { return head_ == nullptr ? 0 : options_.head.at("num_classes").as_int(); }

const VisionModel& require_vision_model(const core::Model& model, std::string_view who) {
  const auto* vision = dynamic_cast<const VisionModel*>(&model);
  base::require(vision != nullptr, "{}: expected a model of images (backbone.type = \"vit\" and the like), found another", who);
  return *vision;
}

}  // namespace mnemo::models
