#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "layers/parameters.h"
#include "memory/learnable_tokens.h"
#include "models/options.h"

namespace mnemo::models {

/// How a trained image model learns another task (Sandler et al. 2022, section 4.1): `[finetune]` of a recipe.
struct FinetuneOptions {
  std::string model;
  enum class Regime {
    head,
    head_and_class_token,
    memory,
    masked_memory,
    full,
    adapters,
    unmasked_memory,
    memory_and_adapters
  };
  Regime regime = Regime::masked_memory;
  std::string name = "task";
  int64_t num_mem_tokens = 5;
  std::optional<std::vector<int64_t>> layers;
  memory::MemoryNorm memory_norm = memory::MemoryNorm::before;
  memory::ClassTokenPosition class_token_position = memory::ClassTokenPosition::same;
  core::Propagation propagation = core::Propagation::none;
  int64_t bottleneck = 8;
  std::vector<std::string> sees;
  template <class V>
  void visit(V&& v) {
    v("model", model, "model folder or run folder of the trained model", base::not_empty());
    v("regime", regime,
      "what is trained: head: only a new head; head_and_class_token: the head and the class token; memory: also memory "
      "tokens that all rows see; masked_memory: memory and a new class token that existing rows do not see, so that "
      "tasks can be combined; full: the whole model; adapters: Houlsby adapters and the head; unmasked_memory: memory "
      "and "
      "a new class token, all of which every row sees; memory_and_adapters: memory and adapters",
      base::one_of("head", "head_and_class_token", "memory", "masked_memory", "full", "adapters", "unmasked_memory",
                   "memory_and_adapters"));
    v("name", name, "name of the task");
    v("num_mem_tokens", num_mem_tokens, "regimes with memory: memory tokens per layer", base::range(0, 1 << 16));
    v("layers", layers, "regimes with memory: layers that have it, counted from 0; unset: all", base::at_least(0));
    v("memory_norm", memory_norm, "regimes with memory: add the memory before a layer's first norm, or after it",
      base::one_of("after", "before"));
    v("class_token_position", class_token_position, "masked_memory, unmasked_memory: position of the new class token",
      base::one_of("class", "none"));
    v("propagation", propagation, "memory, memory_and_adapters: how memory is passed on to later layers",
      base::one_of("none", "first", "added", "appended"));
    v("bottleneck", bottleneck, "adapters, memory_and_adapters: bottleneck width", base::range(1, 1 << 16));
    v("sees", sees, "masked_memory: attached tasks that the new task sees");
  }
  void validate(const base::Where& where) const;
  /// The regime, as a recipe writes it.
  std::string regime_name() const;
};

/// Changes that fine-tuning makes to a model.
struct FinetunePlan {
  ModelOptions options;              ///< of the new model, with the task last
  std::vector<std::string> trained;  ///< name patterns of the parameters to train
  std::string answers;  ///< the task whose head is trained: a name, or "base" if the model's own head is replaced
  /// (new parameter, the parameter that it is initialised from): class tokens start as copies of the backbone's.
  std::vector<std::pair<std::string, std::string>> starts;
  bool has_task_memory = true;  ///< false: all weights change, so only a whole model folder can store the result
};

/// Throws InputError if the model does not support the regime: not an image model, no class token, or incompatible
/// tasks attached.
FinetunePlan plan_finetuning(const ModelOptions& model, const FinetuneOptions& options,
                             const std::vector<std::string>& labels);

/// Parameters that match no pattern are frozen from now on. Throws InputError for a pattern that matches no parameter.
void train_only(const layers::ParameterSet& parameters, const std::vector<std::string>& patterns);

}  // namespace mnemo::models
