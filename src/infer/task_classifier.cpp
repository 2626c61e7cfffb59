#include "infer/task_classifier.h"

#include <torch/types.h>

#include <cmath>

#include "attention/kv_state.h"
#include "backbones/vit_tasks.h"
#include "base/error.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::infer {
namespace {

/// Row by row, so that a row's bits do not depend on where it stands.
at::Tensor normalised(const layers::LayerNorm& norm, const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const int64_t size = x.size(-1);
  for (int64_t row = 0; row < x.numel() / size; ++row) {
    ops::normalise_row(x.const_data_ptr<float>() + row * size, norm.weight.const_data_ptr<float>(),
                       norm.bias.const_data_ptr<float>(), static_cast<float>(norm.eps), size,
                       y.mutable_data_ptr<float>() + row * size);
  }
  return y;
}

void activate(at::Tensor& x) {
  const int64_t size = x.size(-1);
  for (int64_t row = 0; row < x.numel() / size; ++row) {
    ops::activate_row(ops::RowActivation::gelu, x.mutable_data_ptr<float>() + row * size, size);
  }
}

at::Tensor scaled(const at::Tensor& branch, const at::Tensor& scale) {
  return scale.defined() ? branch * scale : branch;
}

}  // namespace

struct TaskClassifier::Packed {
  struct Layer {
    at::Tensor memory_k, memory_v;  ///< [H,M,d] of all tasks; undefined without memory
    std::vector<ops::TaskSight> sights;
  };
  Packed(const models::VisionModel& model, const backbones::Vit& backbone);
  /// Moves the class rows [B,K,D] through layer n; `open` holds the old rows' keys and values.
  at::Tensor advance(size_t n, const at::Tensor& rows, const core::State& open) const;

  const backbones::Vit& vit;
  core::TaskMemory tasks;
  std::vector<Layer> layers;
};

TaskClassifier::Packed::Packed(const models::VisionModel& model, const backbones::Vit& backbone)
    : vit(backbone), tasks(model.tasks()->tasks()) {
  for (size_t n = 0; n < vit.layers().size(); ++n) {
    const backbones::VitLayer& layer = vit.layers()[n];
    const layers::AttentionProjections& maps = *layer.attention->projections();
    Layer& made = layers.emplace_back(Layer{{}, {}, core::task_sights(tasks, static_cast<int64_t>(n))});
    // Memory by memory: the bits of one do not depend on what others there are.
    std::vector<at::Tensor> k, v;
    for (const core::TaskTokens& task : tasks.tasks) {
      if (!task.memory[n].defined()) continue;
      const at::Tensor memory = task.memory[n].contiguous(),
                       rows = task.norm_memory ? normalised(layer.norm1, memory) : memory;
      const auto heads_of = [&](const layers::Linear& map) {
        return map(rows).view({rows.size(0), maps.num_heads, maps.head_dim}).transpose(0, 1);
      };
      k.push_back(heads_of(maps.k));
      v.push_back(heads_of(maps.v));
    }
    if (k.empty()) continue;
    made.memory_k = at::cat(k, 1);
    made.memory_v = at::cat(v, 1);
  }
}

at::Tensor TaskClassifier::Packed::advance(size_t n, const at::Tensor& rows, const core::State& open) const {
  const backbones::VitLayer& layer = vit.layers()[n];
  const layers::AttentionProjections& maps = *layer.attention->projections();
  const Layer& memory = layers[n];
  const auto& old = open.as<attention::KvState>();
  const at::Tensor u = normalised(layer.norm1, rows);
  const auto heads_of = [&](const layers::Linear& map) { return maps.split(map(u)); };
  const at::Tensor q = heads_of(maps.q), k = heads_of(maps.k), v = heads_of(maps.v);
  const at::Tensor o = ops::task_attention(q, {old.k, old.v, k, v, memory.memory_k, memory.memory_v}, memory.sights,
                                           1.0 / std::sqrt(static_cast<double>(maps.head_dim)));
  const at::Tensor h = rows + scaled(maps.o(maps.join(o)), layer.scale1);
  at::Tensor hidden = layer.ffn.in(normalised(layer.norm2, h));
  activate(hidden);
  return h + scaled(layer.ffn.out(hidden), layer.scale2);
}

TaskClassifier::TaskClassifier(std::shared_ptr<const models::VisionModel> model) : model_(std::move(model)) {
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& parameter : model_->parameters().all()) {
    if (parameter.kind == layers::ParameterKind::weight) maps_.add(parameter.tensor);
  }
  const ops::PackedMapsGuard packed_maps(maps_);
  const auto* vit = dynamic_cast<const backbones::Vit*>(&model_->backbone());
  const memory::LearnableTokens* tasks = model_->tasks();
  const at::Tensor& first = model_->parameters().all().front().tensor;
  if (vit == nullptr || tasks == nullptr || tasks->class_rows().empty() || tasks->options().attention != "masked" ||
      vit->has_adapters() || !first.is_cpu() || first.scalar_type() != at::kFloat) {
    return;
  }
  packed_ = std::make_unique<const Packed>(*model_, *vit);
}

TaskClassifier::~TaskClassifier() = default;

std::vector<models::TaskLogits> TaskClassifier::operator()(const at::Tensor& pixels) const {
  const at::NoGradGuard no_grad;
  const ops::PackedMapsGuard packed_maps(maps_);
  if (!packed_) return model_->task_logits({.tokens = {}, .rows = {}, .pixels = pixels});
  const backbones::Vit& vit = packed_->vit;
  const core::Grid grid = vit.grid_of(pixels);
  at::Tensor old = backbones::old_rows(vit, packed_->tasks, pixels);
  std::vector<at::Tensor> fresh;
  for (const at::Tensor& row : backbones::class_rows(vit, packed_->tasks, grid)) {
    if (row.defined()) fresh.push_back(row);
  }
  at::Tensor rows = at::cat(fresh, 1).expand({pixels.size(0), -1, -1}).contiguous();
  const core::AttendTable table = vit.attend_table(grid);
  for (size_t n = 0; n < vit.layers().size(); ++n) {
    const backbones::VitLayer& layer = vit.layers()[n];
    core::AttentionInput input{layer.norm1(old), {}, table};
    input.ends = false;
    const core::AttentionResult attended = layer.attend(input, {});
    rows = packed_->advance(n, rows, attended.state);
    old = layer.rest(old, attended.y, core::Mode::evaluate);
  }
  const at::Tensor hidden = model_->pooled({vit.final_norm()(old), grid});
  rows = normalised(vit.final_norm(), rows);
  std::vector<models::TaskLogits> all;
  if (model_->head()->num_classes() > 0) all.push_back({"base", model_->head()->logits(hidden).squeeze(1)});
  int64_t row = 0;
  for (size_t k = 0; k < packed_->tasks.tasks.size(); ++k) {
    const core::TaskTokens& task = packed_->tasks.tasks[k];
    if (!task.class_token.defined()) {
      all.push_back({task.name, model_->tasks()->head(k)(hidden).squeeze(1)});
      continue;
    }
    all.push_back({task.name, model_->tasks()->head(k)(rows.select(1, row).contiguous())});
    ++row;
  }
  return all;
}

}  // namespace mnemo::infer
