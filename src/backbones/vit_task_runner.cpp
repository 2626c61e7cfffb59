#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "backbones/vit_tasks.h"
#include "core/kv_state.h"
#include "ops/activation.h"
#include "ops/attention/task_attention.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::backbones {
namespace {

/// Row by row, so that a row's result does not depend on its position in the batch, bit for bit.
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
    ops::activate_row(ops::Activation::gelu, x.mutable_data_ptr<float>() + row * size, size);
  }
}

at::Tensor scaled(const at::Tensor& branch, const at::Tensor& scale) {
  return scale.defined() ? branch * scale : branch;
}

/// The existing rows run once, through the model's own layers. The class rows of all tasks run alongside as a small
/// batch; the keys and values of the memories are projected once, not for each image.
class VitTaskRunner final : public core::TaskRunner {
 public:
  VitTaskRunner(const Vit& vit, const core::TaskMemory& tasks);
  core::TasksResult run(const at::Tensor& pixels) const override;

 private:
  struct Layer {
    at::Tensor memory_k, memory_v;  ///< [H,M,d] of all tasks; undefined without memory
    std::vector<ops::TaskSight> sights;
  };
  /// Runs the class rows [B,K,D] through layer n; `open` holds the keys and values of the existing rows.
  at::Tensor advance(size_t n, const at::Tensor& rows, const core::State& open) const;

  const Vit& vit_;
  core::TaskMemory tasks_;
  std::vector<Layer> layers_;
};

VitTaskRunner::VitTaskRunner(const Vit& vit, const core::TaskMemory& tasks) : vit_(vit), tasks_(tasks) {
  for (size_t n = 0; n < vit.layers().size(); ++n) {
    const VitLayer& layer = vit.layers()[n];
    const layers::AttentionProjections& maps = *layer.attention->projections();
    Layer& made = layers_.emplace_back(Layer{{}, {}, core::task_sights(tasks, static_cast<int64_t>(n))});
    // Each memory is projected separately: the bits of one do not depend on which others exist.
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

at::Tensor VitTaskRunner::advance(size_t n, const at::Tensor& rows, const core::State& open) const {
  const VitLayer& layer = vit_.layers()[n];
  const layers::AttentionProjections& maps = *layer.attention->projections();
  const Layer& memory = layers_[n];
  const auto& old = open.as<core::KvState>();
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

core::TasksResult VitTaskRunner::run(const at::Tensor& pixels) const {
  const core::Grid grid = vit_.grid_of(pixels);
  at::Tensor old = old_rows(vit_, tasks_, pixels);
  const std::vector<at::Tensor> entering = class_rows(vit_, tasks_, grid);
  std::vector<at::Tensor> own;
  for (const at::Tensor& row : entering) {
    if (row.defined()) own.push_back(row);
  }
  at::Tensor rows = at::cat(own, 1).expand({pixels.size(0), -1, -1}).contiguous();
  const core::AttendTable table = vit_.attend_table(grid);
  for (size_t n = 0; n < vit_.layers().size(); ++n) {
    const VitLayer& layer = vit_.layers()[n];
    core::AttentionInput input{layer.norm1(old), {}, table};
    input.ends = false;  // keys and values stay in the state
    const core::AttentionResult attended = layer.attend(input, {});
    rows = advance(n, rows, attended.state);
    old = layer.rest(old, attended.y, core::Mode::evaluate);
  }
  rows = normalised(vit_.final_norm(), rows);
  core::TasksResult result{vit_.final_norm()(old), {}, grid};
  int64_t row = 0;
  for (const at::Tensor& task : entering)
    result.tasks.push_back(task.defined() ? rows.narrow(1, row++, 1).contiguous() : at::Tensor());
  return result;
}

}  // namespace

std::unique_ptr<core::TaskRunner> Vit::task_runner(const core::TaskMemory& tasks) const {
  const bool any = std::any_of(tasks.tasks.begin(), tasks.tasks.end(),
                               [](const core::TaskTokens& task) { return task.class_token.defined(); });
  const bool fits = positions_.defined() && positions_.is_cpu() && positions_.scalar_type() == at::kFloat;
  if (!any || !tasks.masked || has_adapters() || !fits) return nullptr;
  return std::make_unique<VitTaskRunner>(*this, tasks);
}

}  // namespace mnemo::backbones
