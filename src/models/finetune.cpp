#include "models/finetune.h"

#include <torch/types.h>

#include <algorithm>

#include "base/choice_name.h"
#include "base/error.h"
#include "base/glob.h"
#include "memory/learnable_tokens.h"
#include "models/detection_options.h"

namespace mnemo::models {

namespace {

using Regime = FinetuneOptions::Regime;

bool has_memory(Regime regime) {
  return regime == Regime::memory || regime == Regime::masked_memory || regime == Regime::unmasked_memory ||
         regime == Regime::memory_and_adapters;
}
/// Whether the task has a class row in addition to the backbone's.
bool has_class_row(Regime regime) { return regime == Regime::masked_memory || regime == Regime::unmasked_memory; }
bool has_adapters(Regime regime) { return regime == Regime::adapters || regime == Regime::memory_and_adapters; }
/// Whether the task has a class token in place of the backbone's.
bool moves_class_token(Regime regime) {
  return regime == Regime::memory || regime == Regime::head_and_class_token || regime == Regime::memory_and_adapters;
}

}  // namespace

void FinetuneOptions::validate(const base::Where& where) const {
  memory::TaskOptions task;
  task.name = name, task.num_mem_tokens = num_mem_tokens, task.layers = layers;
  task.validate(where);
  const std::string found = regime_name();
  const auto belongs = [&](bool allowed, const char* key, const char* regimes) {
    where.require(allowed, key, "belongs to regime = {}, found regime = \"{}\"", regimes, found);
  };
  const char* with_memory = "\"memory\", \"masked_memory\", \"unmasked_memory\" or \"memory_and_adapters\"";
  belongs(!layers || has_memory(regime), "layers", with_memory);
  belongs(propagation == core::Propagation::none || (has_memory(regime) && !has_class_row(regime)), "propagation",
          "\"memory\" or \"memory_and_adapters\"");
  belongs(sees.empty() || regime == Regime::masked_memory, "sees", "\"masked_memory\"");
  // A run's recipe.toml contains every key, so a key at its default was not necessarily set by the user.
  const FinetuneOptions left_out;
  belongs(num_mem_tokens == left_out.num_mem_tokens || has_memory(regime), "num_mem_tokens", with_memory);
  belongs(memory_norm == left_out.memory_norm || has_memory(regime), "memory_norm", with_memory);
  belongs(class_token_position == left_out.class_token_position || has_class_row(regime), "class_token_position",
          "\"masked_memory\" or \"unmasked_memory\"");
  belongs(bottleneck == left_out.bottleneck || has_adapters(regime), "bottleneck",
          "\"adapters\" or \"memory_and_adapters\"");
}

std::string FinetuneOptions::regime_name() const { return base::choice_name(*this, &FinetuneOptions::regime); }

FinetunePlan plan_finetuning(const ModelOptions& model, const FinetuneOptions& options,
                             const std::vector<std::string>& labels) {
  const std::string who = fmt::format("finetune: regime = \"{}\"", options.regime_name());
  const auto classes = static_cast<int64_t>(labels.size());
  base::require(model.backbone.input() == core::InputKind::images && model.kind == ModelOptions::Kind::model,
                "{}: expected a model of images, found backbone.type = \"{}\"", who, model.backbone.type);
  base::require(!is_detector(model),
                "{}: expected a model that classifies images, found a detector; it goes on with "
                "mnemo train and [model] from",
                who);
  FinetunePlan plan{model, {}, options.name, {}};
  const Regime regime = options.regime;
  if (regime == Regime::full) {
    base::require(model.memory.empty() || model.memory.front().type() != memory::LearnableTokens::kType,
                  "{}: changes the backbone that the attached tasks were trained on; detach them first", who);
    plan.options.set_num_classes(classes);
    plan.trained = {"*"};
    plan.answers = "base";
    plan.has_task_memory = false;
    return plan;
  }
  base::require(model.backbone.keys().tasks, "{}: expected backbone.type = \"vit\", found \"{}\"", who,
                model.backbone.type);
  const bool masked = regime == Regime::head || regime == Regime::masked_memory;
  memory::LearnableTokensOptions memory;
  const base::TypedOptions* attached = nullptr;
  for (const base::TypedOptions& one : model.memory) {
    base::require(one.type() == memory::LearnableTokens::kType, "{}: learnable tokens cannot be combined with '{}'",
                  who, one.type());
    attached = &one;
  }
  if (attached != nullptr) {
    memory = attached->as<memory::LearnableTokensOptions>();
    base::require(masked && memory.attention == memory::TaskAttention::masked,
                  "{}: the model has tasks attached, so only masked tasks can be added; detach them first, or choose "
                  "masked_memory or head",
                  who);
  } else {
    memory.attention = masked ? memory::TaskAttention::masked : memory::TaskAttention::full;
    memory.memory_norm = options.memory_norm;
    memory.class_token_position = options.class_token_position;
    memory.propagation = options.propagation;
  }
  memory::TaskOptions task;
  task.name = options.name;
  task.num_classes = classes;
  task.labels = labels;
  task.new_class_token = has_class_row(regime);
  task.own_class_token = moves_class_token(regime);
  task.own_adapters = has_adapters(regime);
  task.num_mem_tokens = has_memory(regime) ? options.num_mem_tokens : 0;
  if (task.num_mem_tokens > 0) task.layers = options.layers;
  if (attached != nullptr) {
    task.memory_norm = options.memory_norm;
    task.class_token_position = options.class_token_position;
  }
  task.sees = options.sees;
  memory.tasks.push_back(task);
  base::check_options(memory);
  base::Node node = base::write_options(memory);
  node.set("type", memory::LearnableTokens::kType);
  plan.options.memory = {ModelOptions::memory_types().read(node)};
  plan.trained = {"task." + options.name + ".*"};
  if (task.own_adapters) {
    base::require(!model.adapters,
                  "{}: the model already has adapters, so a task cannot add its own; choose another regime", who);
    plan.options.adapters = layers::AdapterOptions{};
    plan.options.adapters->bottleneck = options.bottleneck;
    plan.trained.emplace_back("backbone.*.adapter?.*");
  }
  if (task.new_class_token) plan.starts.emplace_back("task." + options.name + ".class_token", "backbone.class_token");
  if (task.own_class_token) plan.starts.emplace_back("task." + options.name + ".cls_token", "backbone.class_token");
  return plan;
}

void train_only(const layers::ParameterSet& parameters, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool used = std::any_of(parameters.all().begin(), parameters.all().end(),
                                  [&](const layers::Parameter& one) { return base::matches(pattern, one.name); });
    base::require(used, "training: no parameter matches the pattern {}", base::in_quotes(pattern));
  }
  for (const layers::Parameter& parameter : parameters.all()) {
    at::Tensor(parameter.tensor).set_requires_grad(base::matches_any(patterns, parameter.name));
  }
}

}  // namespace mnemo::models
