#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model.h"
#include "models/committed_state.h"
#include "models/options.h"

namespace mnemo::core {
class Backbone;
class Head;
}  // namespace mnemo::core

namespace mnemo::models {

/// A model built from options. The kinds are TextModel, ImageModel and PairModel (text_model.h, image_model.h,
/// pair_model.h): each has its own methods beside these.
class Model : public core::Model {
 public:
  core::StepResult forward(const core::Segment& segment, const core::State& state) const final {
    return run(segment, state, {}, {});
  }
  /// Also calls `observe` before each attention and `hidden` with the hidden states.
  core::StepResult forward(const core::Segment& segment, const core::State& state,
                           const core::AttentionObserver& observe, const core::HiddenObserver& hidden = {}) const {
    return run(segment, state, observe, hidden);
  }
  void commit(const core::State& state) override { committed_.commit(state); }
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;
  const layers::ParameterSet& parameters() const override { return parameters_; }
  std::vector<core::Scalar> scalars() const override;
  const core::ModelInput& input() const override { return input_; }

  const ModelOptions& options() const { return options_; }
  /// The layers; of a translation model those of its decoder.
  virtual const core::Backbone& backbone() const = 0;
  /// Null in a layer_stack.
  virtual const core::Head* head_or_null() const = 0;
  const core::Head& head() const;
  /// Classes of the head that logits() uses; 0: it is not a classifier.
  virtual int64_t num_classes() const;
  /// Whether an attention says so of itself: core::AttentionSupport::sees_ahead.
  virtual bool sees_ahead() const { return false; }

 protected:
  /// On the meta device the model has no data: for counting parameters.
  Model(const ModelOptions& options, const core::ModelInput& input, uint64_t seed, at::ScalarType dtype,
        const layers::Budget& budget, at::Device device)
      : options_(options), input_(input), parameters_(seed, dtype, budget, device) {}

  virtual core::StepResult run(const core::Segment& segment, const core::State& state,
                               const core::AttentionObserver& observe, const core::HiddenObserver& hidden) const = 0;
  /// Whether it is no layer_stack, which has neither embedding nor head.
  bool is_whole() const { return options_.kind == ModelOptions::Kind::model; }
  /// Throws InputError naming the backbone unless `given`: the segment lacks `expected`.
  void require_given(bool given, std::string_view expected, const core::Segment& segment) const;
  /// Throws InputError naming the backbone unless `alone`: there is `found` beside what it takes.
  void require_alone(bool alone, std::string_view takes, std::string_view found) const;

  ModelOptions options_;
  core::ModelInput input_;
  layers::ParameterSet parameters_;
  CommittedState committed_;
};

/// Throws InputError "WHO: expected a model of texts, found a model of images": the model is of another kind.
[[noreturn]] void other_kind(const core::Model& model, core::InputKind expected, std::string_view who);

/// The model as one of a kind, such as TextModel. Throws InputError naming `who` for another.
template <class Kind>
const Kind& as(const core::Model& model, std::string_view who) {
  const auto* found = dynamic_cast<const Kind*>(&model);
  if (found == nullptr) other_kind(model, Kind::kInput, who);
  return *found;
}
template <class Kind>
Kind& as(core::Model& model, std::string_view who) {
  return const_cast<Kind&>(as<Kind>(std::as_const(model), who));
}
template <class Kind>
std::shared_ptr<Kind> as(const std::shared_ptr<Model>& model, std::string_view who) {
  return {model, &as<Kind>(static_cast<core::Model&>(*model), who)};
}

/// Throws InputError naming `who` unless the model predicts the next token from those before it, as generating and
/// evaluating text requires.
void require_next_token_model(const core::Model& model, std::string_view who);

/// Notice of commands about a model that sees_ahead().
inline constexpr const char* kSeesAheadNotice =
    "the model's queries see later tokens of their segment, which is for analysis: its perplexity is not that of a "
    "language model";

/// Builds a model of the kind that its backbone reads; its initial parameters depend only on the seed. Throws
/// InputError for invalid options or options that exceed the budget. On the meta device the model has shapes and no
/// data.
std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat,
                             const layers::Budget& budget = {}, at::Device device = at::kCPU);
/// Builds a model that has to be of a kind, such as TextModel. Throws InputError naming the kinds for another.
template <class Kind>
std::unique_ptr<Kind> build_as(const ModelOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat) {
  std::unique_ptr<Model> model = build(options, seed, dtype);
  (void)as<Kind>(std::as_const(*model), "model");
  return std::unique_ptr<Kind>(static_cast<Kind*>(model.release()));
}

/// The number of parameters of a model with those options, counted from their declarations.
int64_t count_parameters(const ModelOptions& options);

}  // namespace mnemo::models
