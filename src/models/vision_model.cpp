#include "models/vision_model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <type_traits>
#include <variant>

#include "base/error.h"
#include "base/ignore_target.h"
#include "models/attention_scalars.h"
#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

std::unique_ptr<backbones::VisionBackbone> make_backbone(const VisionOptions& options,
                                                         const backbones::VisionBuild& build) {
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

VisionModel::VisionModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
                         at::Device device)
    : options_(options), parameters_(seed, dtype, budget, device) {
  base::ensure(options.backbone.is_vision(), "'{}' is no backbone of images", options.backbone.type);
  const layers::Scope root = parameters_.root();
  const bool whole = options.kind == "model";
  const auto attention = [&](const base::Node& core, const core::AttentionBuild& build,
                             const core::ImageLayout& image) {
    return make_image_attention(core, options.memory, build, image);
  };
  backbone_ = make_backbone(options.backbone.vision, {root / "backbone", attention, options.adapters, whole});
  require_layers(options.memory, backbone_->num_layers());
  if (!whole) return;
  const auto head = base::read_typed_options<heads::ClassificationOptions>(options.head);
  base::require(head.pool != "cls" || backbone_->num_class_tokens() > 0,
                "model: head.pool = \"cls\" reads a class token, but backbone.type = \"{}\" has none in these options; "
                "expected \"mean\"",
                options.backbone.type);
  head_ = std::make_unique<heads::Classification>(head, root / "head", backbone_->dim(),
                                                  init_std_of(options.backbone.vision));
  for (const base::Node& memory : options.memory) {
    const memory::Entry& entry = Mechanisms::all().memories.find(type_of(memory));
    if (!entry.tasks) continue;
    tasks_ = entry.tasks(memory, root, backbone_->num_layers(), backbone_->dim(), init_std_of(options.backbone.vision));
  }
}

core::State VisionModel::initial_state(int64_t batch) const {
  return committed_.apply(core::State::list({{"layers", backbone_->initial_state(batch)}}));
}

core::StepResult VisionModel::forward(const core::Segment& segment, const core::State& state,
                                      const core::AttentionObserver& observe,
                                      const backbones::HiddenObserver& hidden) const {
  base::require(segment.part.starts && segment.part.ends,
                "[model] an image has no parts: expected part.starts and part.ends to be true");
  base::require(head_ == nullptr ? segment.rows.defined() : segment.pixels.defined(),
                "[model] backbone.type = \"{}\" takes {}, found {}", options_.backbone.type,
                head_ == nullptr ? "rows [B,T,D]" : "pixels [B,C,H,W]",
                segment.tokens.defined()   ? "tokens"
                : segment.rows.defined()   ? "rows"
                : segment.pixels.defined() ? "pixels"
                                           : "nothing");
  const backbones::VisionInput input{segment.pixels, segment.rows, segment.mode, observe, hidden};
  if (tasks_)
    return {head_rows(input)[answers_ ? *answers_ + 1 : 0], {}, core::State::list({{"layers", state.child("layers")}})};
  backbones::VisionResult result = backbone_->forward(input, state.child("layers"));
  core::StepResult step;
  step.hidden = head_ == nullptr ? result.rows : pooled(result);
  step.state = core::State::list({{"layers", std::move(result.state)}});
  return step;
}

std::vector<at::Tensor> VisionModel::head_rows(const backbones::VisionInput& input) const {
  const auto result = backbone_->forward_tasks(tasks_->tasks(), input);
  const at::Tensor own = pooled({result.rows, result.grid});
  std::vector<at::Tensor> rows = {own};
  for (const at::Tensor& row : result.tasks) rows.push_back(row.defined() ? row : own);
  return rows;
}

std::vector<TaskLogits> VisionModel::task_logits(const core::Segment& segment, const core::AttentionObserver& observe,
                                                 const backbones::HiddenObserver& hidden) const {
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  if (!tasks_) {
    const core::StepResult step = forward(segment, initial_state(segment.pixels.size(0)), observe, hidden);
    if (head_->num_classes() == 0) return {};
    return {{"base", logits(step.hidden).squeeze(1)}};
  }
  const std::vector<at::Tensor> rows = head_rows({segment.pixels, {}, segment.mode, observe, hidden});
  RECORD_USER_SCOPE("head");
  std::vector<TaskLogits> all;
  if (tasks_->options().attention == "masked" && head_->num_classes() > 0)
    all.push_back({"base", head_->logits(rows[0]).squeeze(1)});
  for (size_t k = 0; k + 1 < rows.size(); ++k)
    all.push_back({tasks_->options().tasks[k].name, tasks_->head(k)(rows[k + 1]).squeeze(1)});
  return all;
}

void VisionModel::answer_for(const std::string& task) {
  if (task == "base") {
    answers_.reset();
    return;
  }
  base::require(tasks_ != nullptr, "no task {} is attached; none is", base::in_quotes(task));
  answers_ = tasks_->find(task);
}

at::Tensor VisionModel::pooled(const backbones::VisionResult& result) const {
  if (head_->input() == core::HeadInput::first_row) return result.rows.narrow(1, 0, 1);
  return layers::mean_rows(result.rows.narrow(1, result.rows.size(1) - result.grid.size(), result.grid.size()), {});
}

at::Tensor VisionModel::logits(const at::Tensor& hidden) const {
  RECORD_USER_SCOPE("head");
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  return answers_ ? tasks_->head(*answers_)(hidden) : head_->logits(hidden);
}

at::Tensor VisionModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  RECORD_USER_SCOPE("head");
  base::ensure(head_ != nullptr, "a layer_stack has no head");
  if (!answers_) return head_->nll(hidden, targets);
  return at::cross_entropy_loss(logits(hidden).flatten(0, -2), targets.reshape({-1}), {}, at::Reduction::None,
                                base::kIgnoreTarget)
      .view(targets.sizes());
}

std::vector<core::Scalar> VisionModel::scalars() const { return attention_scalars(*backbone_); }

int64_t VisionModel::num_classes() const {
  if (answers_) return tasks_->options().tasks[*answers_].num_classes;
  return head_ == nullptr ? 0 : options_.head.at("num_classes").as_int();
}

const VisionModel& require_vision_model(const core::Model& model, std::string_view who) {
  const auto* vision = dynamic_cast<const VisionModel*>(&model);
  base::require(vision != nullptr,
                "{}: expected a model of images (backbone.type = \"vit\" and the like), found another", who);
  return *vision;
}

}  // namespace mnemo::models
