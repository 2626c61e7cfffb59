#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/attention.h"
#include "core/inspection.h"

namespace mnemo::core {

/// An attention around another, inner(). It can do whatever the inner one can: each capability of Attention is passed
/// on here, with the inner attention's part of the state, and a wrapper overrides what it changes. Only the decoders
/// are not passed on, since they would compute the inner attention alone.
/// Base: Attention, or CoreAttention for a wrapper that returns heads too.
template <class Base>
class WrappedAttention : public Base {
 public:
  AttentionSupport support() const override { return inner_->support(); }
  State initial_state(int64_t batch) const override { return inner_->initial_state(batch); }
  int64_t bptt_depth(std::string_view field) const final {
    const auto of_inner = inner_field(field);
    return of_inner ? inner_->bptt_depth(*of_inner) : own_bptt_depth(own_field(field));
  }
  int64_t max_rows(std::string_view field, Mode mode) const final {
    const auto of_inner = inner_field(field);
    return of_inner ? inner_->max_rows(*of_inner, mode) : own_max_rows(own_field(field), mode);
  }
  const layers::AttentionProjections* projections() const override { return inner_->projections(); }
  const ReadsHeads* reads_heads() const override { return inner_->reads_heads(); }
  at::Tensor reduced(const at::Tensor& rows, Grid grid) const override { return inner_->reduced(rows, grid); }
  AttentionView inspect(const AttentionInput& input, const State& state, const State& history) const override {
    AttentionView view;
    for_inner(input, state, [&](const auto& seen, const State& own) { view = inner_->inspect(seen, own, history); });
    return view;
  }
  State history(const AttentionInput& input, const State& state, const State& history) const override {
    State next;
    for_inner(input, state, [&](const auto& seen, const State& own) { next = inner_->history(seen, own, history); });
    return next;
  }
  std::vector<BranchRows> branches(const AttentionInput& input, const State& state) const override {
    std::vector<BranchRows> all;
    for_inner(input, state, [&](const auto& seen, const State& own) { all = inner_->branches(seen, own); });
    return all;
  }
  std::vector<Scalar> scalars() const override { return inner_->scalars(); }

 protected:
  using Call = std::function<void(const AttentionInput&, const State&)>;

  /// own: the name of the wrapper's own state, which stands beside the inner attention's, "core"; empty: it has none,
  /// and its state is the inner attention's.
  explicit WrappedAttention(std::unique_ptr<CoreAttention> inner, std::string own = {})
      : inner_(std::move(inner)), own_(std::move(own)) {}
  const CoreAttention& inner() const { return *inner_; }
  State own_state(const State& state) const { return state.child(own_); }
  State inner_state(const State& state) const { return own_.empty() ? state : state.child(kInner); }
  /// Both states as one.
  State joined(State own, State inner) const {
    return State::list({{own_, std::move(own)}, {std::string(kInner), std::move(inner)}});
  }
  /// Calls `call` with what the inner attention is given when the wrapper is called.
  virtual void for_inner(const AttentionInput& input, const State& state, const Call& call) const {
    call(input, inner_state(state));
  }
  /// bptt_depth() and max_rows() of the fields of its own state.
  virtual int64_t own_bptt_depth(std::string_view /*field*/) const { return 0; }
  virtual int64_t own_max_rows(std::string_view /*field*/, Mode /*mode*/) const { return 0; }

 private:
  static constexpr std::string_view kInner = "core";

  std::optional<std::string_view> inner_field(std::string_view field) const {
    if (own_.empty()) return field;
    if (field.size() <= kInner.size() || !field.starts_with(kInner) || field[kInner.size()] != '.') return std::nullopt;
    return field.substr(kInner.size() + 1);
  }
  std::string_view own_field(std::string_view field) const { return field.substr(own_.size() + 1); }

  std::unique_ptr<CoreAttention> inner_;
  std::string own_;
};

}  // namespace mnemo::core
