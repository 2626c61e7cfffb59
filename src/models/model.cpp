#include "models/model.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <type_traits>
#include <variant>

#include "base/error.h"
#include "core/backbone.h"
#include "core/head.h"
#include "models/attention_scalars.h"
#include "models/kinds.h"

namespace mnemo::models {
namespace {

const char* found_in(const core::Segment& segment) {
  return segment.tokens.defined()   ? "tokens"
         : segment.rows.defined()   ? "rows"
         : segment.pixels.defined() ? "pixels"
                                    : "nothing";
}

/// A model of the kind that the options describe.
std::unique_ptr<Model> make(const ModelOptions& options, uint64_t seed, at::ScalarType dtype,
                            const layers::Budget& budget, at::Device device) {
  const auto as = [&]<class Kind>(std::type_identity<Kind>) -> std::unique_ptr<Model> {
    return std::make_unique<Kind>(options, seed, dtype, budget, device);
  };
  const Overloaded kind_of{
      [&](const backbones::EncoderOptions&) { return as(std::type_identity<TextModel>()); },
      [&](const backbones::VisionOptions&) { return as(std::type_identity<ImageModel>()); },
      [&](const EncoderDecoderOptions&) { return as(std::type_identity<PairModel>()); },
  };
  return std::visit(kind_of, options.backbone.options);
}

}  // namespace

at::Tensor Model::logits(const at::Tensor& hidden) const {
  RECORD_USER_SCOPE("head");
  return head().logits(hidden);
}

at::Tensor Model::nll(const at::Tensor& hidden, const at::Tensor& targets) const {
  RECORD_USER_SCOPE("head");
  return head().nll(hidden, targets);
}

std::vector<core::Scalar> Model::scalars() const { return attention_scalars(backbone()); }

const core::Head& Model::head() const {
  const core::Head* head = head_or_null();
  base::ensure(head != nullptr, "a layer_stack has no head");
  return *head;
}

int64_t Model::num_classes() const {
  const core::Head* head = head_or_null();
  return head == nullptr ? 0 : head->num_classes();
}

void Model::require_given(bool given, std::string_view expected, const core::Segment& segment) const {
  base::require(given, "[model] backbone.type = \"{}\" takes {}, found {}", options_.backbone.type, expected,
                found_in(segment));
}

void Model::require_alone(bool alone, std::string_view takes, std::string_view found) const {
  base::require(alone, "[model] backbone.type = \"{}\" takes {}, found {} with them", options_.backbone.type, takes,
                found);
}

void other_kind(const core::Model& model, core::InputKind expected, std::string_view who) {
  base::input_error("{}: expected {}, found {}", who, core::model_of(expected),
                    core::model_of(core::kind_of(model.input())));
}

void require_next_token_model(const core::Model& model, std::string_view who) {
  base::require(std::holds_alternative<core::TokenInput>(model.input()),
                "{}: expected a model that predicts the next token, found {}", who,
                core::model_of(core::kind_of(model.input())));
  const auto* built = dynamic_cast<const Model*>(&model);
  if (built == nullptr) return;
  const ModelOptions& options = built->options();
  const core::Head* head = built->head_or_null();
  base::require(head != nullptr && head->predicts_next_token(),
                "{}: expected a model that predicts the next token, found head.type = \"{}\"", who,
                options.head.type());
  base::require(options.backbone.causal(),
                "{}: expected a model that predicts the next token, found backbone.type = \"{}\", which is not causal",
                who, options.backbone.type);
}

std::unique_ptr<Model> build(const ModelOptions& options, uint64_t seed, at::ScalarType dtype,
                             const layers::Budget& budget, at::Device device) {
  base::check_options(options);
  return make(options, seed, dtype, budget, device);
}

int64_t count_parameters(const ModelOptions& options) {
  base::check_options(options);
  return make(options, 0, at::kFloat, {}, at::kMeta)->parameters().count();
}

}  // namespace mnemo::models
