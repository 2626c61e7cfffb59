#include "core/task_tokens.h"

#include <torch/types.h>

namespace mnemo::core {

std::vector<ops::TaskSight> task_sights(const TaskMemory& tasks, int64_t layer) {
  const auto l = static_cast<size_t>(layer);
  std::vector<std::pair<int64_t, int64_t>> memories;  // span of each task's memory rows
  std::vector<int64_t> rows;                          // index of its class row
  int64_t at = 0, row = 0;
  for (const TaskTokens& task : tasks.tasks) {
    const int64_t count = task.memory[l].defined() ? task.memory[l].size(0) : 0;
    memories.emplace_back(at, at + count);
    at += count;
    rows.push_back(row);
    row += task.class_token.defined();
  }
  std::vector<ops::TaskSight> sights;
  for (size_t k = 0; k < tasks.tasks.size(); ++k) {
    const TaskTokens& task = tasks.tasks[k];
    if (!task.class_token.defined()) continue;
    ops::TaskSight sight;
    std::vector<int64_t> seen = {static_cast<int64_t>(k)};
    seen.insert(seen.end(), task.sees.begin(), task.sees.end());
    for (const int64_t other : seen) {
      const auto number = static_cast<size_t>(other);
      sight.classes.push_back(rows[number]);
      if (memories[number].first < memories[number].second) sight.memories.push_back(memories[number]);
    }
    sights.push_back(std::move(sight));
  }
  return sights;
}

AttendTable task_table(const TaskMemory& tasks, int64_t layer, int64_t old_rows, int64_t propagated) {
  AttendTable table({SpanKind::tokens, old_rows}, Rule::all());
  const auto sights = task_sights(tasks, layer);
  const auto rows = static_cast<int64_t>(sights.size());
  int64_t memory = 0;
  if (tasks.propagation == Propagation::none) {
    for (const TaskTokens& task : tasks.tasks) {
      const at::Tensor& own = task.memory[static_cast<size_t>(layer)];
      memory += own.defined() ? own.size(0) : 0;
    }
  }
  const Rule among = tasks.masked ? Rule::none() : Rule::all();
  if (rows > 0) table.append_rows({SpanKind::class_token, rows});
  if (memory > 0) table.append_context({SpanKind::memory, memory}, among);
  if (propagated > 0) {
    table.append_rows({SpanKind::memory, propagated});
    for (const SpanKind one : {SpanKind::tokens, SpanKind::class_token, SpanKind::memory}) {
      table.set_rule(one, SpanKind::memory, Rule::all());
      table.set_rule(SpanKind::memory, one, Rule::all());
    }
  }
  if (rows == 0) return table;
  table.set_rule(SpanKind::class_token, SpanKind::tokens, Rule::all());
  table.set_rule(SpanKind::tokens, SpanKind::class_token, among);
  if (!tasks.masked) {
    table.set_rule(SpanKind::class_token, SpanKind::class_token, Rule::all());
    return table;
  }
  const at::Tensor mask = ops::task_mask(sights, 0, memory);
  table.set_rule(SpanKind::class_token, SpanKind::class_token, Rule::pattern(mask.narrow(1, 0, rows)));
  if (memory > 0) table.set_rule(SpanKind::class_token, SpanKind::memory, Rule::pattern(mask.narrow(1, rows, memory)));
  return table;
}

}  // namespace mnemo::core
