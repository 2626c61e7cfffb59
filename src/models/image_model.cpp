#include "models/image_model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include "backbones/registry.h"
#include "backbones/vision_build.h"
#include "base/error.h"
#include "base/ignore_target.h"
#include "core/real_cells.h"
#include "models/detection_options.h"
#include "models/hidden_rows.h"
#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

core::ImageInput input_of(const BackboneOptions& backbone) {
  const std::vector<int64_t> size = backbone.image_size();
  return {size.at(0), size.at(1), backbone.image_channels()};
}

/// The backbone's input for images, or for the rows of an image in a layer_stack.
core::BackboneInput image_input(const core::Segment& segment, const core::AttentionObserver& observe,
                                const core::HiddenObserver& hidden) {
  core::BackboneInput input;
  input.rows = segment.rows;
  input.pixels = segment.pixels;
  input.mode = segment.mode;
  input.observe = observe;
  input.hidden = hidden;
  return input;
}

/// Height and width of each image in a padded batch.
std::vector<core::Grid> image_sizes(const core::Segment& segment) {
  const int64_t batch = segment.pixels.size(0), height = segment.pixels.size(2), width = segment.pixels.size(3);
  const at::Tensor& valid = segment.valid;
  if (!valid.defined()) return std::vector<core::Grid>(static_cast<size_t>(batch), {height, width});
  base::require(valid.scalar_type() == at::kBool && valid.sizes() == at::IntArrayRef({batch, height, width}),
                "[model] valid: expected [{},{},{}] bool for these pixels, found {} {}", batch, height, width,
                c10::str(valid.sizes()), c10::toString(valid.scalar_type()));
  const auto real = core::RealCells::from_mask(valid.flatten(1), {height, width});
  base::require(real.all() ? valid.all().item<bool>() : at::equal(real.mask(valid.device()), valid.flatten(1)), "{}",
                "[model] valid: expected images in the upper left corner, padded on the right and below");
  std::vector<core::Grid> sizes;
  for (int64_t b = 0; b < batch; ++b) sizes.push_back(real.of_image(b));
  return sizes;
}

/// Which rows of the grid are of an image [B,N] and not of padding; undefined: all.
at::Tensor real_rows(const core::BackboneInput& input, core::Grid grid) {
  if (input.image_sizes.empty()) return {};
  const auto real = core::RealCells::of("model", input.image_sizes, input.pixels.size(2), input.pixels.size(3), grid);
  return real.mask(input.pixels.device());
}

}  // namespace

ImageModel::ImageModel(const ModelOptions& options, uint64_t seed, at::ScalarType dtype, const layers::Budget& budget,
                       at::Device device)
    : Model(options, input_of(options.backbone), seed, dtype, budget, device) {
  const layers::Scope root = parameters_.root();
  make_backbone(root / "backbone");
  require_layers(options_.memory, backbone_->num_layers());
  if (!is_whole()) return;
  make_head(root / "head");
  for (const base::TypedOptions& memory : options_.memory) {
    const memory::Entry& entry = Mechanisms::all().memories.find(memory.type());
    if (!entry.tasks) continue;
    tasks_ = entry.tasks(memory, root, backbone_->num_layers(), backbone_->dim(), options_.backbone.weight_std());
  }
}

void ImageModel::make_backbone(const layers::Scope& scope) {
  const auto attention = [&](const base::Node& core, const core::AttentionBuild& build,
                             const core::ImageLayout& image) {
    return make_image_attention(core, options_.memory, build, image);
  };
  const backbones::VisionBuild build{scope, attention, options_.adapters, is_whole()};
  backbone_ = backbones::make_vision_backbone(options_.backbone.vision(), build);
  task_backbone_ = dynamic_cast<const core::TaskBackbone*>(backbone_.get());
}

void ImageModel::make_head(const layers::Scope& scope) {
  heads::HeadBuild build{scope, backbone_->dim(), options_.embedding.vocab_size, options_.backbone.weight_std()};
  const layers::Scope root = parameters_.root();
  const heads::BackboneStages stages = stages_of(options_.backbone.vision());
  const heads::DetectorBuild detector{root, stages, options_.backbone.type};
  build.detector = &detector;
  head_ = Mechanisms::all().heads.find(options_.head.type()).make(options_.head, build);
  const bool first = head_->input() == core::HeadInput::first_row || head_->input() == core::HeadInput::first_token;
  base::require(!first || backbone_->num_class_tokens() > 0,
                "model: head.pool = \"cls\" reads a class token, but backbone.type = \"{}\" has none in these "
                "options; expected \"mean\"",
                options_.backbone.type);
}

core::State ImageModel::initial_state(int64_t batch) const {
  return committed_.apply(core::State::list({{"layers", backbone_->initial_state(batch)}}));
}

void ImageModel::require_images(const core::Segment& segment) const {
  require_given(is_whole() ? segment.pixels.defined() : segment.rows.defined(),
                is_whole() ? "pixels [B,C,H,W]" : "rows [B,T,D]", segment);
  require_alone(!segment.tokens.defined() && !segment.source.defined(), "pixels or rows alone", "tokens");
  require_alone(!segment.token_types.defined(), "pixels or rows alone", "token types");
  base::require(segment.part.starts && segment.part.ends,
                "[model] an image is always whole: expected part.starts and part.ends to be true");
  base::require(!tasks_ || !segment.valid.defined(),
                "[model] tasks of a learnable memory read whole images: expected no padding, found valid");
}

core::StepResult ImageModel::run(const core::Segment& segment, const core::State& state,
                                 const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const {
  require_images(segment);
  core::BackboneInput input = image_input(segment, observe, hidden);
  const core::LevelHead* levels = level_head();
  input.levels = levels != nullptr;
  // A detector reads a whole image as one without padding in a batch of larger ones, unless it sees padding.
  const bool sizes = levels != nullptr ? !levels->sees_padding() : is_whole() && segment.valid.defined();
  if (sizes) input.image_sizes = image_sizes(segment);
  const core::State layers = state.child("layers");
  core::StepResult step;
  if (tasks_) {
    step.hidden = head_rows(task_backbone_->forward_tasks(tasks_->tasks(), input))[answers_ ? *answers_ + 1 : 0];
    step.state = core::State::list({{"layers", layers}});
    return step;
  }
  core::BackboneResult result = backbone_->forward(input, layers);
  const int64_t grid = result.grid.size(), rows = result.hidden.size(1);
  if (levels != nullptr) {
    RECORD_USER_SCOPE("head");
    step.hidden = levels->rows(result.levels);
  } else {
    step.hidden = head_ == nullptr
                      ? result.hidden
                      : hidden_rows(head_.get(), result.hidden, rows - grid, grid, real_rows(input, result.grid));
  }
  step.state = core::State::list({{"layers", std::move(result.state)}});
  return step;
}

at::Tensor ImageModel::logits(const at::Tensor& hidden) const {
  if (!answers_) return Model::logits(hidden);
  RECORD_USER_SCOPE("head");
  return tasks_->head(*answers_)(hidden);
}

at::Tensor ImageModel::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  if (!answers_) return Model::nll(hidden, targets);
  RECORD_USER_SCOPE("head");
  return at::cross_entropy_loss(logits(hidden).flatten(0, -2), targets.reshape({-1}), {}, at::Reduction::None,
                                base::kIgnoreTarget)
      .view(targets.sizes());
}

std::vector<at::Tensor> ImageModel::head_rows(const core::TasksResult& result) const {
  const int64_t grid = result.grid.size(), count = result.hidden.size(1);
  const at::Tensor own = hidden_rows(head_.get(), result.hidden, count - grid, grid, {});
  std::vector<at::Tensor> rows = {own};
  for (const at::Tensor& row : result.tasks) rows.push_back(row.defined() ? row : own);
  return rows;
}

std::vector<TaskLogits> ImageModel::task_logits(const core::Segment& segment, const core::AttentionObserver& observe,
                                                const core::HiddenObserver& hidden) const {
  require_images(segment);
  if (!tasks_) {
    const core::StepResult step = forward(segment, initial_state(segment.pixels.size(0)), observe, hidden);
    if (const core::LevelHead* levels = level_head()) {
      RECORD_USER_SCOPE("head");
      levels->run(step.hidden, segment.pixels.size(2), segment.pixels.size(3));
      return {};
    }
    if (head().num_classes() == 0) return {};
    return {{"base", logits(step.hidden).squeeze(1)}};
  }
  return task_logits(task_backbone_->forward_tasks(tasks_->tasks(), image_input(segment, observe, hidden)));
}

std::vector<TaskLogits> ImageModel::task_logits(const core::TasksResult& result) const {
  const std::vector<at::Tensor> rows = head_rows(result);
  RECORD_USER_SCOPE("head");
  std::vector<TaskLogits> all;
  if (tasks_->options().attention == memory::TaskAttention::masked && head().num_classes() > 0)
    all.push_back({"base", head().logits(rows[0]).squeeze(1)});
  for (size_t k = 0; k + 1 < rows.size(); ++k)
    all.push_back({tasks_->options().tasks[k].name, tasks_->head(k)(rows[k + 1]).squeeze(1)});
  return all;
}

void ImageModel::answer_for(const std::string& task) {
  if (task == "base") {
    answers_.reset();
    return;
  }
  base::require(tasks_ != nullptr, "no task {} is attached; the model has no tasks", base::in_quotes(task));
  answers_ = tasks_->find(task);
}

std::string ImageModel::answers() const { return answers_ ? tasks_->options().tasks[*answers_].name : "base"; }

int64_t ImageModel::num_classes() const {
  return answers_ ? tasks_->options().tasks[*answers_].num_classes : Model::num_classes();
}

}  // namespace mnemo::models
