#include "weights/task_memory.h"

#include <torch/types.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "memory/learnable_tokens.h"
#include "models/model.h"

namespace mnemo::weights {
namespace {

constexpr const char* kTaskFormat = "mnemo-task/2";
constexpr const char* kOldTaskFormat = "mnemo-task/1";
/// Limits for the config, which may have a name for each of many classes.
constexpr base::ReadLimits kLimits{.max_bytes = size_t{16} << 20, .max_depth = 16, .max_values = 1 << 18};
/// The content of `config` in the metadata.
struct Config {
  memory::LearnableTokensOptions memory;
  std::optional<layers::AdapterOptions> adapters;
  template <class V>
  void visit(V&& v) {
    v("memory", memory, "the memory's options with one task");
    v("adapters", adapters, "beside it");
  }
};

std::string prefix_of(const std::string& name) { return "task." + name + "."; }
bool is_adapter(const std::string& name) {
  return name.starts_with("backbone.") && name.find(".adapter") != std::string::npos;
}

void add(base::Sha256& sum, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
  sum.update(fmt::format("{}{}\n", name, c10::str(plain.sizes())));
  sum.update(plain.const_data_ptr(), static_cast<size_t>(plain.numel()) * 4);
}

/// Checksum of `options` and of the tensors for which `name_of` returns a name, sorted by these names.
template <class F>
std::string checksum(const std::string& options, const NamedTensors& tensors, F&& name_of) {
  std::vector<std::pair<std::string, const at::Tensor*>> chosen;
  for (const auto& [name, tensor] : tensors) {
    if (std::optional<std::string> own = name_of(name)) chosen.emplace_back(*own, &tensor);
  }
  std::sort(chosen.begin(), chosen.end());
  base::Sha256 sum;
  sum.update(options);
  for (const auto& [name, tensor] : chosen) add(sum, name, *tensor);
  return sum.hex();
}

/// Whether the adapters came with a task; otherwise they are part of the backbone.
bool adapters_of_task(const memory::LearnableTokensOptions& memory) {
  return std::any_of(memory.tasks.begin(), memory.tasks.end(),
                     [](const memory::TaskOptions& task) { return task.own_adapters; });
}

void set_memory(models::ModelOptions& options, const memory::LearnableTokensOptions& memory) {
  std::erase_if(options.memory,
                [](const base::TypedOptions& one) { return one.type() == memory::LearnableTokens::kType; });
  if (memory.tasks.empty()) return;
  base::Node node = base::write_options(memory);
  node.set("type", memory::LearnableTokens::kType);
  options.memory.push_back(models::ModelOptions::memory_types().read(node));
}

std::string text(const TensorFile& file, const char* key, const std::string& path) {
  const auto found = file.metadata.find(key);
  base::require(found != file.metadata.end(), "{}: expected '{}' in __metadata__ of a task memory, found none",
                base::printable(path, 400), key);
  return found->second;
}

void check_tensors(const TaskMemoryFile& file, const std::string& path) {
  const memory::TaskOptions& task = file.task();
  const std::string prefix = prefix_of(task.name);
  base::require(task.own_adapters == file.adapters.has_value(),
                "{}: config: expected adapters exactly where the task has own_adapters = true",
                base::printable(path, 400));
  int64_t dim = -1;
  for (const auto& [name, tensor] : file.tensors) {
    const bool own = name.starts_with(prefix), adapter = is_adapter(name);
    base::require(own || (adapter && file.adapters), "{}: tensor '{}' belongs neither to task '{}' nor to its adapters",
                  base::printable(path, 400), base::printable(name), task.name);
    base::require(tensor.is_floating_point() && tensor.dim() >= 1 && tensor.numel() > 0,
                  "{}: tensor '{}': expected numbers, found {} of {}", base::printable(path, 400),
                  base::printable(name), at::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
    if (name == prefix + "head.weight") {
      base::require(tensor.dim() == 2 && tensor.size(0) == task.num_classes,
                    "{}: tensor '{}': expected [{},D], found {}", base::printable(path, 400), base::printable(name),
                    task.num_classes, c10::str(tensor.sizes()));
      dim = tensor.size(1);
    }
  }
  base::require(dim > 0, "{}: expected tensor '{}head.weight', found none", base::printable(path, 400), prefix);
}

/// Throws InputError, with the file's tensor names, if the last task has tensors that the model lacks or vice versa.
void check_fit(const StoredParts& model, const memory::TaskOptions& task, const std::string& own_prefix,
               const std::string& shown) {
  std::unique_ptr<models::Model> declared;
  try {
    declared = models::build(model.options, 0, at::kFloat, {}, at::kMeta);
  } catch (const base::InputError& error) {
    base::input_error("{}: does not fit the model: {}", shown, error.what());
  }
  const std::string prefix = prefix_of(task.name);
  const auto belongs = [&](const std::string& name) {
    return name.starts_with(prefix) || (task.own_adapters && is_adapter(name));
  };
  const auto in_file = [&](const std::string& name) {
    return name.starts_with(prefix) ? own_prefix + name.substr(prefix.size()) : name;
  };
  for (const auto& [name, tensor] : model.tensors) {
    if (!belongs(name)) continue;
    const at::Tensor place = declared->parameters().find(name);
    base::require(place.defined(), "{}: tensor '{}' has no place in the model", shown, base::printable(in_file(name)));
    base::require(place.sizes() == tensor.sizes(), "{}: tensor '{}': expected {}, found {}", shown, in_file(name),
                  c10::str(place.sizes()), c10::str(tensor.sizes()));
  }
  for (const layers::Parameter& parameter : declared->parameters().all()) {
    const bool there = std::any_of(model.tensors.begin(), model.tensors.end(),
                                   [&](const auto& one) { return one.first == parameter.name; });
    base::require(there || !belongs(parameter.name), "{}: expected tensor '{}', found none", shown,
                  in_file(parameter.name));
  }
}

}  // namespace

memory::LearnableTokensOptions tasks_of(const models::ModelOptions& options) {
  for (const base::TypedOptions& memory : options.memory) {
    if (memory.type() == memory::LearnableTokens::kType) return memory.as<memory::LearnableTokensOptions>();
  }
  return {};
}

std::string backbone_checksum(const StoredParts& model) {
  const bool leaves_adapters = adapters_of_task(tasks_of(model.options));
  base::Node options = base::write_options(model.options.backbone);
  for (const char* key : {"dropout", "drop_path", "init_std"}) options.erase(key);
  if (model.options.adapters && !leaves_adapters) options.set("adapters", base::write_options(*model.options.adapters));
  options.set("pool", model.options.head.table().at("pool").as_string());
  return checksum(base::to_json(options, -1) + "\n", model.tensors,
                  [&](const std::string& name) -> std::optional<std::string> {
                    if (!name.starts_with("backbone.") || (leaves_adapters && is_adapter(name))) return std::nullopt;
                    return name;
                  });
}

std::string task_checksum(const StoredParts& model, const std::string& task) {
  std::string seen;  // and the tasks that it sees itself, since its rows depend on them
  for (const memory::TaskOptions& one : tasks_of(model.options).tasks) {
    if (one.name != task) continue;
    for (const std::string& other : one.sees) seen += other + " " + task_checksum(model, other) + "\n";
  }
  return checksum(seen, model.tensors, [&](const std::string& name) -> std::optional<std::string> {
    if (!name.starts_with(prefix_of(task))) return std::nullopt;
    return name.substr(prefix_of(task).size());
  });
}

void write_task_memory(const std::string& path, const TaskMemoryFile& task) {
  base::ensure(task.memory.tasks.size() == 1, "a task memory of {} tasks", task.memory.tasks.size());
  base::Node sees = base::Node::table();
  for (const auto& [name, sum] : task.sees) sees.set(name, sum);
  write_safetensors(path, task.tensors,
                    {{"format", kTaskFormat},
                     {"config", base::to_json(base::write_options(Config{task.memory, task.adapters}), -1)},
                     {"backbone", task.backbone},
                     {"sees", base::to_json(sees, -1)},
                     {"about", task.about}});
}

TaskMemoryFile read_task_memory(const std::string& path) {
  const TensorFile file = read_safetensors(path, {.limits = {}, .check_finite = true});
  const std::string shown = base::printable(path, 400);
  const auto format = file.metadata.find("format");
  base::require(format == file.metadata.end() || format->second != kOldTaskFormat,
                "{}: expected a task memory of format \"{}\", found \"{}\", whose checksum covers the backbone's "
                "weights but not its options; mnemo finetune --resume RUN writes the task again",
                shown, kTaskFormat, kOldTaskFormat);
  base::require(format != file.metadata.end() && format->second == kTaskFormat,
                "{}: expected a task memory of format \"{}\", found {}", shown, kTaskFormat,
                format == file.metadata.end() ? "a file without format" : base::in_quotes(format->second));
  const auto config = base::read_options<Config>(
      base::parse_json(text(file, "config", path), path + " (config)", kLimits));
  TaskMemoryFile task{
      config.memory, config.adapters, file.tensors, text(file, "backbone", path), {}, text(file, "about", path)};
  base::require(task.memory.tasks.size() == 1, "{}: expected one task, found {}", shown, task.memory.tasks.size());
  const base::Node sees = base::parse_json(text(file, "sees", path), path + " (sees)");
  base::require(sees.is_table(), "{}: sees: expected a table, found {}", shown, sees.found());
  for (const base::Node::Member& member : sees.members()) task.sees.emplace_back(member.key, member.value.as_string());
  check_tensors(task, path);
  return task;
}

TaskMemoryFile take_task(const StoredParts& model, const std::string& name) {
  memory::LearnableTokensOptions memory = tasks_of(model.options);
  const auto found = std::find_if(memory.tasks.begin(), memory.tasks.end(),
                                  [&](const auto& task) { return task.name == name; });
  base::ensure(found != memory.tasks.end(), "no task '{}'", name);
  TaskMemoryFile file;
  const memory::TaskOptions task = *found;
  for (const std::string& other : task.sees) file.sees.emplace_back(other, task_checksum(model, other));
  memory.tasks = {task};
  memory.tasks.front().sees.clear();  // the file's `sees` has names and checksums instead
  file.memory = memory;
  if (task.own_adapters) file.adapters = model.options.adapters;
  for (const auto& [tensor_name, tensor] : model.tensors) {
    if (tensor_name.starts_with(prefix_of(name)) || (task.own_adapters && is_adapter(tensor_name)))
      file.tensors.emplace_back(tensor_name, tensor);
  }
  file.backbone = backbone_checksum(model);
  return file;
}

void attach(StoredParts& model, const TaskMemoryFile& task, const std::string& file, const AttachOptions& options) {
  const std::string shown = base::printable(file, 400), own = backbone_checksum(model);
  base::require(task.backbone == own, "{}: made for another backbone: expected checksum {}..., found {}...", shown,
                own.substr(0, 12), base::printable(task.backbone.substr(0, 12)));
  memory::LearnableTokensOptions memory = tasks_of(model.options);
  memory::TaskOptions added = task.task();
  added.name = options.name.value_or(added.name);
  const bool first = memory.tasks.empty();
  const auto shown_attention = [](const memory::LearnableTokensOptions& of) {
    return of.attention == memory::TaskAttention::masked ? "masked" : "full";
  };
  const bool passes_on = task.memory.propagation != core::Propagation::none;
  base::require(first || (memory.attention == task.memory.attention && !passes_on &&
                          memory.propagation == core::Propagation::none),
                "{}: attention = \"{}\"{} cannot be joined with the tasks of this model, which have attention = "
                "\"{}\"; only masked tasks keep one another's results",
                shown, shown_attention(task.memory), passes_on ? " with propagation" : "", shown_attention(memory));
  base::require(!added.own_adapters || !model.options.adapters, "{}: has adapters, and so has the model, {}", shown,
                adapters_of_task(memory) ? "those of a task; detach that first" : "its own");
  base::require(first || (!added.own_adapters && !added.own_class_token),
                "{}: adapters, or a class token that replaces the backbone's, change existing rows; such a task cannot "
                "be joined with others",
                shown);
  for (const memory::TaskOptions& other : memory.tasks) {
    base::require(other.name != added.name, "{}: a task '{}' is attached already; give this one another name (--name)",
                  shown, added.name);
    base::require(!other.own_class_token && !other.own_adapters,
                  "{}: task '{}' has changed existing rows and cannot be joined with others; detach it first", shown,
                  other.name);
  }
  added.sees.clear();
  if (options.sees) {
    added.sees = *options.sees;
  } else {
    for (const auto& [name, sum] : task.sees) {
      const bool there = std::any_of(memory.tasks.begin(), memory.tasks.end(),
                                     [&, &wanted = name](const auto& other) { return other.name == wanted; });
      base::require(there,
                    "{}: was trained as an extension of '{}', which is not attached; attach that first, or name what "
                    "it sees (--sees)",
                    shown, name);
      base::require(task_checksum(model, name) == sum,
                    "{}: was trained as an extension of another task '{}' than the one attached", shown, name);
      added.sees.push_back(name);
    }
  }
  if (first) {
    memory = task.memory;
    memory.tasks.clear();
  } else {
    added.memory_norm = added.memory_norm.value_or(task.memory.memory_norm);
    added.class_token_position = added.class_token_position.value_or(task.memory.class_token_position);
  }
  memory.tasks.push_back(added);
  base::check_options(memory);
  set_memory(model.options, memory);
  if (task.adapters) model.options.adapters = task.adapters;
  const std::string from = prefix_of(task.task().name), to = prefix_of(added.name);
  for (const auto& [name, tensor] : task.tensors)
    model.tensors.emplace_back(name.starts_with(from) ? to + name.substr(from.size()) : name, tensor);
  check_fit(model, added, from, shown);
}

void detach(StoredParts& model, const std::string& name, const std::string& folder) {
  memory::LearnableTokensOptions memory = tasks_of(model.options);
  std::vector<std::string> names;
  bool there = false, adapters = false;
  for (const memory::TaskOptions& task : memory.tasks) {
    names.push_back(task.name);
    there = there || task.name == name;
    adapters = adapters || (task.name == name && task.own_adapters);
    base::require(std::find(task.sees.begin(), task.sees.end(), name) == task.sees.end(),
                  "{}: task '{}' sees '{}'; detach it first", base::printable(folder, 400), task.name, name);
  }
  base::require(there, "{}: no task {} is attached{}", base::printable(folder, 400), base::in_quotes(name),
                names.empty() ? std::string("; none is") : base::suggestion(name, names));
  std::erase_if(memory.tasks, [&](const auto& task) { return task.name == name; });
  set_memory(model.options, memory);
  if (adapters) model.options.adapters.reset();
  std::erase_if(model.tensors, [&](const auto& one) {
    return one.first.starts_with(prefix_of(name)) || (adapters && is_adapter(one.first));
  });
}

}  // namespace mnemo::weights
