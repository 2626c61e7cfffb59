#include "memory/abc.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "core/grouped_queries.h"
#include "core/inspection.h"
#include "ops/weights_from_outputs.h"

namespace mnemo::memory {
namespace {

/// Which keys are not padding [B,S]; undefined = no padding. ABC attends to slots, not keys, so it supports only causal
/// masks.
at::Tensor key_validity(const core::AttendTable& table, bool causal) {
  base::ensure(causal ? table.plain_causal() : table.open(),
               "ABC attends through its slots: the attention table must be {} throughout", causal ? "causal" : "open");
  const at::Tensor& valid = table.valid();
  if (!valid.defined() || table.is_cross()) return valid;
  return valid.narrow(1, table.num_context(), table.num_rows());
}

/// Scope for parameters shared by the controls of all layers: "attn_control" next to the layers. A layer's second
/// attention ("cross") has its own.
layers::Scope shared_control(const core::AttentionBuild& build) {
  const std::string& prefix = build.attn.prefix();
  const std::string name = prefix.substr(prefix.rfind('.') + 1);
  return build.shared / (name.empty() ? "control" : name + "_control");
}

}  // namespace

AbcOptions::AbcOptions() : control(abc_control_types(), base::Node::table({{"type", "mlp"}})) {}

void AbcOptions::validate(const base::Where& where) const {
  where.require(!tied_across_layers || abc_control_learns(control.type()), "tied_across_layers",
                "control '{}' has no parameters to share across layers; expected false", control.type());
}

std::optional<core::RowLimit> Abc::row_limit(const base::TypedOptions& options) {
  const auto& abc = options.as<Options>();
  const auto places = abc_row_limit(abc.control, abc.num_slots);
  return places ? std::optional(core::RowLimit{places->rows, options, places->key}) : std::nullopt;
}

Abc::Abc(const Options& options, const core::AttentionBuild& build)
    : ProjectedAttention(build, options),
      options_(options),
      causal_(build.causal),
      frequencies_(options.frequencies(build.head_dim)) {
  scale_ = options.scale == AbcOptions::Scale::sqrt_d ? 1.0 / std::sqrt(static_cast<double>(build.head_dim)) : 1.0;
  const layers::Scope shared = shared_control(build), own = build.attn / "control";
  control_ = make_abc_control(options.control, {build, options.tied_across_layers ? shared : own, shared,
                                                options.num_slots, scale_, options.mask_empty_slots, maps_.q.weight});
}

AbcCall Abc::call_of(const core::AttentionInput& input) const {
  const bool cross = input.table.is_cross();
  base::ensure(cross || !input.context.defined(), "ABC: unsupported: rows of a layer context");
  base::ensure(!(cross && causal_), "ABC: the causal form does not support cross-attention");
  const at::Tensor& rows = cross ? input.context : input.x;
  const auto [q, k, v] = maps_.heads(input.x, rows);
  const at::Tensor valid = key_validity(input.table, causal_);
  const core::RowTurns turns(frequencies_, rows.size(1), valid);
  return {turns.rows(q),
          core::for_queries(turns.rows(k), maps_.num_heads),
          core::for_queries(v, maps_.num_heads),
          rows,
          valid,
          {},
          input.from_below,
          input.mode,
          input.ends};
}

AbcAnswer Abc::attend(const AbcCall& call, const core::State& state) const {
  AbcAnswer answer = control_->attend(call, state);
  if (frequencies_.empty() || !causal_) return answer;
  const core::RowTurns turns(frequencies_, call.k.size(2), call.valid);
  answer.state = answer.state.map([&](const core::Field& field, const at::Tensor& tensor) {
    return field.path == "k" ? turns.past(tensor) : tensor;
  });
  return answer;
}

core::CoreAttention::Heads Abc::heads(const core::AttentionInput& input, const core::State& state) const {
  AbcAnswer answer = attend(call_of(input), state);
  return {maps_.join(answer.o), std::move(answer.state), std::move(answer.slots)};
}

core::AttentionResult Abc::forward_assigned(const core::AttentionInput& input, const core::State& state,
                                            const at::Tensor& slot_index) const {
  base::require(control_->takes_slot_index(), "[abc] control '{}' does not support slot_index",
                options_.control.type());
  AbcCall call = call_of(input);
  call.slot_index = slot_index;
  AbcAnswer answer = attend(call, state);
  return {maps_.o(maps_.join(answer.o)), std::move(answer.state), std::move(answer.slots)};
}

core::AttentionView Abc::inspect(const core::AttentionInput& input, const core::State& state,
                                 const core::State& history) const {
  AbcCall call = call_of(input);
  const at::Tensor own = call.v;
  const core::State nothing = state.map([](const core::Field& field, const at::Tensor& tensor) {
    return field.path == "v" ? at::zeros_like(tensor) : tensor;
  });
  std::vector<at::Tensor> held;  // slots are also linear in the values
  const at::Tensor weights = ops::weights_from_outputs([&](const ops::ReplaceValues& replace) {
    call.v = replace(own);
    const AbcAnswer answer = control_->attend(call, nothing);
    if (answer.held.defined()) held.push_back(answer.held.transpose(2, 3));
    for (const auto& [field, tensor] : answer.state.fields()) {
      // [B,H,n,d], or [B,H,2,n,d] for two queues; the queues are concatenated.
      if (field.path == "v") held.push_back((tensor.dim() == 5 ? tensor.flatten(2, 3) : tensor).transpose(2, 3));
    }
    return answer.o;
  });
  core::AttentionView view{{{"attention", core::MapAxis::queries, core::MapAxis::keys, weights}}};
  if (!history.empty()) {
    // With values of one since the start of the sequence, the output is the total weight that reaches a query.
    call.v = at::ones_like(own);
    view.maps[0].past = control_->attend(call, history).o.select(3, 0) - weights.sum(3);
  }
  if (!held.empty())
    view.maps.push_back(
        {"held", core::MapAxis::keys, core::MapAxis::slots, at::cat(held, 2).narrow(2, 0, own.size(2))});
  return view;
}

core::State Abc::history(const core::AttentionInput& input, const core::State&, const core::State& history) const {
  if (!causal_) return {};
  AbcCall call = call_of(input);
  call.v = at::ones_like(call.v);
  return attend(call, history.empty() ? initial_state(call.v.size(0)) : history).state;
}

}  // namespace mnemo::memory
