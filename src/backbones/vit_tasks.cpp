#include "backbones/vit_tasks.h"

#include <torch/types.h>

#include "base/error.h"

namespace mnemo::backbones {
namespace {

using core::Rule;
using core::SpanKind;

/// A task's memory of layer n as the attention receives it, [B,m,D]; undefined if there is none.
at::Tensor memory_rows(const core::TaskTokens& task, size_t n, const VitLayer& layer, int64_t batch) {
  const at::Tensor& memory = task.memory[n];
  if (!memory.defined()) return {};
  return (task.norm_memory ? layer.norm1(memory) : memory).unsqueeze(0).expand({batch, -1, -1});
}

at::Tensor joined(const std::vector<at::Tensor>& rows) {
  if (rows.empty()) return {};
  return rows.size() == 1 ? rows.front() : at::cat(rows, 1);
}

/// The rows of a ViT with its tasks, on their way through the layers.
struct Rows {
  at::Tensor old;               ///< [B,T,D]
  std::vector<at::Tensor> own;  ///< [B,1,D] for each task, undefined without a class row
  at::Tensor propagated = {};   ///< [B,r,D]

  at::Tensor all() const {
    std::vector<at::Tensor> parts = {old};
    for (const at::Tensor& row : own) {
      if (row.defined()) parts.push_back(row);
    }
    if (propagated.defined()) parts.push_back(propagated);
    return joined(parts);
  }
  void set_all(const at::Tensor& rows) {
    int64_t at = old.size(1);
    old = rows.narrow(1, 0, at);
    for (at::Tensor& row : own) {
      if (row.defined()) row = rows.narrow(1, at++, 1);
    }
    if (propagated.defined()) propagated = rows.narrow(1, at, rows.size(1) - at);
  }
};

void propagate(Rows& rows, const core::TaskMemory& tasks, size_t n) {
  const at::Tensor& memory = tasks.tasks.front().memory[n];
  if (!memory.defined()) return;
  const at::Tensor fresh = memory.unsqueeze(0).expand({rows.old.size(0), -1, -1});
  if (!rows.propagated.defined()) {
    rows.propagated = fresh;
  } else if (tasks.propagation == core::Propagation::added) {
    rows.propagated = rows.propagated + fresh;
  } else {
    rows.propagated = at::cat({rows.propagated, fresh}, 1);
  }
}

/// All rows at once with the dense mask.
void run_dense(const VitLayer& layer, size_t n, const core::TaskMemory& tasks, const core::BackboneInput& input,
               Rows& rows) {
  std::vector<at::Tensor> memories;
  if (tasks.propagation != core::Propagation::none) {
    propagate(rows, tasks, n);
  } else {
    for (const core::TaskTokens& task : tasks.tasks) {
      if (const at::Tensor memory = memory_rows(task, n, layer, rows.old.size(0)); memory.defined())
        memories.push_back(memory);
    }
  }
  const at::Tensor x = rows.all();
  const int64_t passing = rows.propagated.defined() ? rows.propagated.size(1) : 0;
  const core::AttendTable table = core::task_table(tasks, static_cast<int64_t>(n), rows.old.size(1), passing);
  const core::AttentionInput attention{layer.norm1(x), joined(memories), table, input.mode};
  if (input.observe) input.observe(static_cast<int64_t>(n), *layer.attention, attention, {});
  rows.set_all(layer.rest(x, layer.attend(attention, {}).y, input.mode));
}

/// The old rows as without tasks, then each class row separately.
void run_grouped(const VitLayer& layer, size_t n, const core::TaskMemory& tasks, const core::AttendTable& old_table,
                 const core::BackboneInput& input, Rows& rows) {
  const int64_t batch = rows.old.size(0);
  core::AttentionInput attention{layer.norm1(rows.old), {}, old_table, input.mode};
  attention.ends = false;  // keys and values stay in the state
  if (input.observe) input.observe(static_cast<int64_t>(n), *layer.attention, attention, {});
  const core::AttentionResult attended = layer.attend(attention, {});
  std::vector<at::Tensor> entering(rows.own.size()), memories(rows.own.size());
  for (size_t k = 0; k < rows.own.size(); ++k) {
    if (!rows.own[k].defined()) continue;
    entering[k] = layer.norm1(rows.own[k]);
    memories[k] = memory_rows(tasks.tasks[k], n, layer, batch);
  }
  for (size_t k = 0; k < rows.own.size(); ++k) {
    if (!rows.own[k].defined()) continue;
    std::vector<at::Tensor> seen;
    if (memories[k].defined()) seen.push_back(memories[k]);
    for (const int64_t other : tasks.tasks[k].sees) {
      seen.push_back(entering[static_cast<size_t>(other)]);
      if (const at::Tensor& memory = memories[static_cast<size_t>(other)]; memory.defined()) seen.push_back(memory);
    }
    const at::Tensor context = joined(seen);
    core::AttendTable table({SpanKind::class_token, 1}, Rule::all());
    table.append_context({SpanKind::tokens, rows.old.size(1)}, Rule::all());
    if (context.defined()) table.append_context({SpanKind::memory, context.size(1)}, Rule::all());
    const at::Tensor y = layer.attend({entering[k], context, table, input.mode}, attended.state).y;
    rows.own[k] = layer.rest(rows.own[k], y, input.mode);
  }
  rows.old = layer.rest(rows.old, attended.y, input.mode);
}

}  // namespace

at::Tensor old_rows(const Vit& vit, const core::TaskMemory& tasks, const at::Tensor& pixels) {
  const at::Tensor rows = vit.embed(pixels);
  if (!tasks.class_token.defined()) return rows;
  base::require(vit.num_class_tokens() == 1,
                "[vit] a task's class token requires a backbone with a class token (cls_tokens = 1)");
  const at::Tensor first = tasks.class_token + vit.positions(vit.grid_of(pixels)).narrow(0, 0, 1);
  return at::cat({first.expand({rows.size(0), 1, -1}), rows.narrow(1, 1, rows.size(1) - 1)}, 1);
}

std::vector<at::Tensor> class_rows(const Vit& vit, const core::TaskMemory& tasks, const core::Grid& grid) {
  std::vector<at::Tensor> rows;
  for (const core::TaskTokens& task : tasks.tasks) {
    const bool positioned = task.class_token.defined() && task.class_position && vit.num_class_tokens() == 1;
    rows.push_back(positioned ? task.class_token + vit.positions(grid).narrow(0, 0, 1) : task.class_token);
  }
  return rows;
}

core::TasksResult forward_tasks(const Vit& vit, const core::TaskMemory& tasks, const core::BackboneInput& input,
                                core::TaskForm form) {
  const core::Grid grid = vit.grid_of(input.pixels);
  Rows rows{old_rows(vit, tasks, input.pixels), {}};
  if (input.hidden) input.hidden("embed", rows.old);
  const bool training = input.mode == core::Mode::train;
  const double dropout = vit.options().dropout;
  rows.old = layers::dropout(rows.old, dropout, training);
  for (const at::Tensor& row : class_rows(vit, tasks, grid)) {
    rows.own.push_back(
        row.defined() ? layers::dropout(row.expand({rows.old.size(0), 1, -1}).contiguous(), dropout, training) : row);
  }
  const core::AttendTable old_table = vit.attend_table(grid);
  const bool grouped = tasks.masked && form == core::TaskForm::grouped;
  for (size_t n = 0; n < vit.layers().size(); ++n) {
    const VitLayer& layer = vit.layers()[n];
    if (grouped) {
      run_grouped(layer, n, tasks, old_table, input, rows);
    } else {
      run_dense(layer, n, tasks, input, rows);
    }
    if (input.hidden) input.hidden(fmt::format("layers.{}", n), rows.all());
  }
  core::TasksResult result{vit.final_norm()(rows.old), {}, grid};
  for (const at::Tensor& row : rows.own) result.tasks.push_back(row.defined() ? vit.final_norm()(row) : row);
  return result;
}

core::TasksResult Vit::forward_tasks(const core::TaskMemory& tasks, const core::BackboneInput& input,
                                     core::TaskForm form) const {
  return backbones::forward_tasks(*this, tasks, input, form);
}

}  // namespace mnemo::backbones
