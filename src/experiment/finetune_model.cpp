#include "experiment/finetune_model.h"

#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "models/image_model.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::experiment {

FinetuneModel finetune_model(const models::Model& stored, const std::string& folder,
                             const models::FinetuneOptions& options, const std::vector<std::string>& labels,
                             uint64_t seed) {
  // They go into config.json and the task's file, which are UTF-8.
  for (const std::string& label : labels) {
    base::require(!base::first_invalid_utf8(label),
                  "finetune: class \"{}\" of the data is not UTF-8; give it another name", base::printable(label, 200));
  }
  FinetuneModel made{nullptr, models::plan_finetuning(stored.options(), options, labels)};
  base::check_options(made.plan.options);
  made.model = std::make_shared<models::ImageModel>(made.plan.options, seed, at::kFloat);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : made.model->parameters().named()) {
    const at::Tensor old = stored.parameters().find(name);
    // A new head of the model itself starts afresh, as do the parts of the task.
    if (old.defined() && (made.plan.has_task_memory || !name.starts_with("head."))) at::Tensor(tensor).copy_(old);
  }
  for (const auto& [fresh, from] : made.plan.starts) {
    const at::Tensor start = made.model->parameters().find(from);
    base::require(start.defined(),
                  "finetune: regime = \"{}\" starts from the class token of the model, which has none ({})",
                  options.regime_name(), folder);
    made.model->parameters().find(fresh).copy_(start.view({1, 1, -1}));
  }
  made.model->commit(stored.initial_state(1));  // running statistics of batch norms, the cache of GRC
  models::train_only(made.model->parameters(), made.plan.trained);
  made.model->answer_for(made.plan.answers);
  return made;
}

std::optional<std::string> write_task(const std::string& folder, const models::Model& model,
                                      const models::FinetunePlan& plan, const std::string& about) {
  if (!plan.has_task_memory) return std::nullopt;
  weights::TaskMemoryFile file = weights::take_task({model.options(), weights::model_tensors(model)}, plan.answers);
  file.about = about;
  std::string path = base::join_path(folder, plan.answers + ".task.safetensors");
  weights::write_task_memory(path, file);
  return path;
}

}  // namespace mnemo::experiment
