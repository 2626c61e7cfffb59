#include "models/finetune.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/glob.h"
#include "memory/learnable_tokens.h"

namespace mnemo::models {

void FinetuneOptions::validate(const base::Where& where) const {
  const bool memory = regime == Regime::memory, masked = regime == Regime::masked_memory;
  const std::string found = regime_name();
  where.require(!layers || memory || masked, "layers",
                "belongs to regime = \"memory\" or \"masked_memory\", found regime = \"{}\"", found);
  where.require(propagation == core::Propagation::none || memory, "propagation",
                "belongs to regime = \"memory\", found regime = \"{}\"", found);
  where.require(sees.empty() || masked, "sees", "belongs to regime = \"masked_memory\", found regime = \"{}\"", found);
  // A run's recipe.toml contains every key, so a key at its default was not necessarily set by the user.
  const FinetuneOptions left_out;
  where.require(num_mem_tokens == left_out.num_mem_tokens || memory || masked, "num_mem_tokens",
                "belongs to regime = \"memory\" or \"masked_memory\", found regime = \"{}\"", found);
  where.require(memory_norm == left_out.memory_norm || memory || masked, "memory_norm",
                "belongs to regime = \"memory\" or \"masked_memory\", found regime = \"{}\"", found);
  where.require(class_token_position == left_out.class_token_position || masked, "class_token_position",
                "belongs to regime = \"masked_memory\", found regime = \"{}\"", found);
  where.require(bottleneck == left_out.bottleneck || regime == Regime::adapters, "bottleneck",
                "belongs to regime = \"adapters\", found regime = \"{}\"", found);
}

std::string FinetuneOptions::regime_name() const { return base::write_options(*this).at("regime").as_string(); }

FinetunePlan plan_finetuning(const ModelOptions& model, const FinetuneOptions& options,
                             const std::vector<std::string>& labels) {
  const std::string who = fmt::format("finetune: regime = \"{}\"", options.regime_name());
  const auto classes = static_cast<int64_t>(labels.size());
  base::require(model.backbone.input() == core::InputKind::images && model.kind == ModelOptions::Kind::model,
                "{}: expected a model of images, found backbone.type = \"{}\"", who, model.backbone.type);
  FinetunePlan plan{model, {}, options.name, {}};
  using Regime = FinetuneOptions::Regime;
  const Regime regime = options.regime;
  if (regime == Regime::full) {
    base::require(model.memory.empty() || type_of(model.memory.front()) != memory::LearnableTokens::kType,
                  "{}: changes the backbone that the attached tasks were trained on; detach them first", who);
    plan.options.head.set("num_classes", classes);
    plan.trained = {"*"};
    plan.answers = "base";
    plan.has_task_memory = false;
    return plan;
  }
  base::require(model.backbone.takes_tasks(), "{}: expected backbone.type = \"vit\", found \"{}\"", who,
                model.backbone.type);
  const bool masked = regime == Regime::head || regime == Regime::masked_memory,
             moves = regime == Regime::memory || regime == Regime::head_and_class_token;
  memory::LearnableTokensOptions memory;
  const base::Node* attached = nullptr;
  for (const base::Node& one : model.memory) {
    base::require(type_of(one) == memory::LearnableTokens::kType, "{}: learnable tokens cannot be combined with '{}'",
                  who, type_of(one));
    attached = &one;
  }
  if (attached != nullptr) {
    memory = base::read_typed_options<memory::LearnableTokensOptions>(*attached);
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
  task.new_class_token = regime == Regime::masked_memory;
  task.own_class_token = moves;
  task.own_adapters = regime == Regime::adapters;
  task.num_mem_tokens = regime == Regime::memory || regime == Regime::masked_memory ? options.num_mem_tokens : 0;
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
  plan.options.memory = {ModelOptions::memory_types().complete(node)};
  plan.trained = {"task." + options.name + ".*"};
  if (regime == Regime::adapters) {
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
    const bool trained = std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
      return base::matches(pattern, parameter.name);
    });
    at::Tensor(parameter.tensor).set_requires_grad(trained);
  }
}

}  // namespace mnemo::models
