#include "bundle/peft.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "models/model.h"
#include "weights/foreign.h"
#include "weights/lora.h"
#include "weights/safetensors.h"

namespace mnemo::bundle {
namespace {

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";
constexpr std::string_view kPrefix = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight",
                           kWeight = ".weight";

/// The rule that names one of our tensors; null if there is none.
const weights::NameRule* rule_of(const weights::ForeignFormat& format, const std::string& ours) {
  for (const weights::NameRule& rule : format.tensors) {
    if (!weights::theirs_by(rule, ours).empty()) return &rule;
  }
  return nullptr;
}

/// The parameters for which the format has a name.
weights::NamedTensors named_by(const weights::ForeignFormat& format, const models::Model& model) {
  weights::NamedTensors named;
  for (const auto& [name, tensor] : model.parameters().named()) {
    if (rule_of(format, name) != nullptr) named.emplace_back(name, tensor.detach());
  }
  return named;
}

/// Whether the published model looks the tensor up by number: PEFT has factors of another form for such a table.
bool is_table(std::string_view ours) {
  constexpr std::string_view kTables[] = {"embed.weight", "positions.weight", "token_types.weight"};
  return !ours.ends_with(kWeight) || std::any_of(std::begin(kTables), std::end(kTables),
                                                 [&](std::string_view table) { return ours.ends_with(table); });
}

/// Whether that is the embedding of a model whose output reads it too. PEFT gives the input alone a new one, so that
/// the two come apart.
bool is_tied(const models::Model& model, std::string_view ours) {
  return ours == "embed.weight" && model.options().shares_embedding();
}

int64_t heads_of_layers(const models::Model& model) { return model.options().backbone.num_heads(); }

/// Settings of an adapter that change what its tensors mean.
struct PeftConfig {
  double alpha = 0;
  bool rank_stabilised = false;
  double scale(int64_t rank) const {
    return alpha / (rank_stabilised ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }
};

bool flag_of(const base::Node& config, const char* key) {
  const base::Node* value = config.find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

/// Whether a setting is left out, null, false or empty.
bool is_off(const base::Node* value) {
  if (value == nullptr || value->is_null()) return true;
  if (value->is_bool()) return !value->as_bool();
  return (value->is_table() && value->members().empty()) || (value->is_array() && value->size() == 0);
}

PeftConfig read_config(const std::string& folder) {
  const std::string path = base::join_path(folder, kConfig);
  const base::Node config = base::parse_json(base::read_file(path, uint64_t{1} << 20), path);
  const base::Node* type = config.find("peft_type");
  base::require(type != nullptr && type->is_string() && type->as_string() == "LORA",
                "{}: 'peft_type': expected \"LORA\", found {}", path, type == nullptr ? "none" : type->found());
  for (const char* key : {"use_dora", "alpha_pattern", "lora_bias", "layer_replication", "use_qalora", "corda_config",
                          "trainable_token_indices", "target_parameters", "alora_invocation_tokens"}) {
    base::require(is_off(config.find(key)), "{}: '{}': unsupported: expected none, found {}", path, key,
                  is_off(config.find(key)) ? "" : config.find(key)->found());
  }
  const base::Node* start = config.find("init_lora_weights");
  base::require(start == nullptr || !start->is_string() || start->as_string() == "gaussian",
                "{}: 'init_lora_weights': unsupported: expected true, false or \"gaussian\", as others change the base "
                "model, found {}",
                path, start == nullptr ? "" : start->found());
  const base::Node* alpha = config.find("lora_alpha");
  base::require(alpha != nullptr && (alpha->is_int() || alpha->is_real()), "{}: 'lora_alpha': expected a number", path);
  return {alpha->as_double(), flag_of(config, "use_rslora")};
}

/// The model's tensors by their names in the published format, each a copy.
std::map<std::string, at::Tensor> their_tensors(const weights::ForeignFormat& format, const weights::NamedTensors& ours,
                                                int64_t heads) {
  std::map<std::string, at::Tensor> theirs;
  for (const auto& [name, tensor] : weights::to_theirs(format, ours, heads)) theirs[name] = tensor.clone();
  return theirs;
}

/// The name and the tensor of a name in the adapter, which may have the format's prefix or not.
std::pair<const std::string, at::Tensor>& find_theirs(const weights::ForeignFormat& format,
                                                      std::map<std::string, at::Tensor>& theirs,
                                                      const std::string& name, const std::string& path) {
  const std::string prefix(format.variants ? format.variants->prefix : "");
  const std::string plain = !prefix.empty() && name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& reading : {name, plain, prefix + name}) {
    if (const auto found = theirs.find(reading); found != theirs.end()) return *found;
  }
  base::input_error("{}: the model has no tensor '{}'; expected the model that the adapter was trained on", path,
                    base::printable(name));
}

void require_shape(at::IntArrayRef sizes, const at::Tensor& target, const std::string& path, const std::string& name) {
  base::require(sizes == target.sizes(), "{}: '{}': expected the shape of the model's {}, found {}", path,
                base::printable(name), c10::str(target.sizes()), c10::str(sizes));
}

/// The factors of one module of the published model: of each of our tensors that it joins, those that were trained.
struct Module {
  const weights::NameRule* rule = nullptr;
  std::vector<std::pair<std::string, at::Tensor>> parts;  ///< our tensors, in the order of the rule's parts
};

std::map<std::string, Module> modules_of(const weights::ForeignFormat& format, const models::Model& model) {
  std::map<std::string, Module> modules;
  for (const auto& [name, tensor] : named_by(format, model)) {
    const weights::NameRule* rule = rule_of(format, name);
    Module& module = modules[weights::theirs_by(*rule, name)];
    module.rule = rule;
    module.parts.resize(static_cast<size_t>(rule->parts));
    module.parts[static_cast<size_t>(rule->part)] = {name, tensor};
  }
  return modules;
}

}  // namespace

bool is_peft(const std::string& path) { return base::path_exists(base::join_path(path, kConfig)); }

void apply_peft(const std::string& folder, const weights::ForeignFormat& format, models::Model& model) {
  const at::NoGradGuard no_grad;
  const PeftConfig config = read_config(folder);
  const std::string path = base::join_path(folder, kTensors);
  const weights::TensorFile file = weights::read_safetensors(path);
  const weights::NamedTensors ours = named_by(format, model);
  const std::map<std::string, Module> modules = modules_of(format, model);
  std::map<std::string, at::Tensor> theirs = their_tensors(format, ours, heads_of_layers(model));
  const auto embedding = theirs.find(format.variants ? std::string(format.variants->embedding) : std::string());
  const at::Tensor* const tied = embedding != theirs.end() && model.options().shares_embedding() ? &embedding->second
                                                                                                 : nullptr;
  base::require(!file.tensors.empty(), "{}: expected tensors of LoRA, found none", path);
  for (const auto& [full, tensor] : file.tensors) {
    base::require(full.starts_with(kPrefix), "{}: '{}': expected a name that begins with {}", path,
                  base::printable(full), kPrefix);
    if (full.find(".original_module.") != std::string::npos) continue;  // what modules_to_save takes the place of
    std::string name = full.substr(kPrefix.size());
    if (name.ends_with(kB)) {
      file.at(full.substr(0, full.size() - kB.size()).append(kA), path);
    } else if (name.ends_with(kA)) {
      const at::Tensor& b = file.at(full.substr(0, full.size() - kA.size()).append(kB), path);
      base::require(tensor.dim() == 2 && b.dim() == 2 && b.size(1) == tensor.size(0) && b.size(1) > 0,
                    "{}: '{}': expected matrices [r,in] and [out,r], found {} and {}", path, base::printable(full),
                    c10::str(tensor.sizes()), c10::str(b.sizes()));
      name = name.substr(0, name.size() - kA.size()).append(kWeight);
      auto& [own, weight] = find_theirs(format, theirs, name, path);
      // fan_in_fan_out is that of the last module which PEFT has wrapped; GPT-2 has both kinds.
      const auto module = modules.find(own);
      const bool transposed = module != modules.end() && module->second.rule->transposed;
      std::vector<int64_t> sizes = {b.size(0), tensor.size(1)};
      if (transposed) std::swap(sizes[0], sizes[1]);
      require_shape(sizes, weight, path, full);
      const at::Tensor change = at::matmul(b.to(at::kFloat), tensor.to(at::kFloat)) * config.scale(tensor.size(0));
      weight += transposed ? change.t() : change;
    } else {
      base::require(name.find("lora_") == std::string::npos, "{}: unsupported: '{}'; expected lora_A and lora_B", path,
                    base::printable(full));
      for (const char* wrapper : {"modules_to_save.", "base_layer."}) base::replace_all(name, wrapper, "");
      at::Tensor& whole = find_theirs(format, theirs, name, path).second;
      require_shape(tensor.sizes(), whole, path, full);
      base::require(&whole != tied || at::equal(tensor.to(whole.options()), whole),
                    "{}: '{}': unsupported: the model's output shares this table, and PEFT changes the input's alone; "
                    "expected the numbers of the model, found others",
                    path, base::printable(full));
      whole.copy_(tensor);
    }
  }
  weights::TensorFile changed;
  for (auto& [name, tensor] : theirs) changed.tensors.emplace_back(name, std::move(tensor));
  weights::load_theirs(format, changed, ours, path, heads_of_layers(model));
}

namespace {

/// A and B of a module with `rank` rows and columns: those of its parts below and beside one another, zeros elsewhere.
std::pair<at::Tensor, at::Tensor> joined_factors(const weights::ForeignFormat& format, const Module& module,
                                                 const weights::TensorFile& lora, int64_t rank, int64_t heads) {
  std::vector<at::Tensor> a;
  weights::NamedTensors b;
  int64_t row = 0;
  for (const auto& [name, weight] : module.parts) {
    at::Tensor columns = at::zeros({weight.size(0), rank});
    if (const at::Tensor* own = lora.find(name + std::string(weights::kLoraA)); own != nullptr) {
      a.push_back(*own);
      columns.narrow(1, row, own->size(0)).copy_(*lora.find(name + std::string(weights::kLoraB)));
      row += own->size(0);
    }
    b.emplace_back(name, columns);
  }
  if (row < rank) a.push_back(at::zeros({rank - row, module.parts.front().second.size(1)}));
  at::Tensor joined = weights::to_theirs(format, b, heads).front().second;
  if (module.rule->transposed) joined = joined.t();
  return {at::cat(a, 0), joined};
}

int64_t rank_of(const Module& module, const weights::TensorFile& lora) {
  int64_t rank = 0;
  for (const auto& [name, weight] : module.parts) {
    if (const at::Tensor* a = lora.find(name + std::string(weights::kLoraA)); a != nullptr) rank += a->size(0);
  }
  return rank;
}

/// Trained tensors without factors, as modules_to_save; throws InputError for those that the format cannot name.
void add_whole(const weights::ForeignFormat& format, const models::Model& model, const weights::TensorFile& lora,
               weights::NamedTensors& tensors, std::set<std::string>& saved, const std::string& path) {
  std::vector<std::string> unnamed;
  for (const auto& [name, tensor] : lora.tensors) {
    const bool factor = name.ends_with(weights::kLoraA);
    if (name.ends_with(weights::kLoraB)) continue;
    const std::string ours = factor ? name.substr(0, name.size() - weights::kLoraA.size()) : name;
    const weights::NameRule* rule = rule_of(format, ours);
    if (factor && rule != nullptr && !is_table(ours)) continue;
    if (rule == nullptr || factor || rule->parts > 1 || is_tied(model, ours)) {
      unnamed.push_back(name);
      continue;
    }
    const std::string theirs = weights::theirs_by(*rule, name);
    tensors.emplace_back(std::string(kPrefix) + theirs, weights::to_theirs(format, {{name, tensor}}).front().second);
    saved.insert(theirs.substr(0, theirs.rfind('.')));
  }
  base::require(
      unnamed.empty(),
      "{}: PEFT has no place for Mnemo's own tensors, a tied embedding and factors of tables: {}; merge it into "
      "the model instead (without --to peft)",
      path, base::listed(unnamed, 4));
}

}  // namespace

void write_peft(const std::string& lora, const weights::ForeignFormat& format, const models::Model& model,
                const std::string& base, const std::string& out) {
  const at::NoGradGuard no_grad;
  const weights::TensorFile file = weights::read_safetensors(lora);
  const double scale = weights::lora_scale(file, lora);
  for (const base::TypedOptions& memory : model.options().memories())
    base::input_error(
        "{}: PEFT has no place for the model's memory '{}'; merge the file into the model instead (without "
        "--to peft)",
        lora, memory.type());
  weights::require_lora(file, model.parameters().named(), lora);
  const std::map<std::string, Module> modules = modules_of(format, model);
  int64_t rank = 0;
  for (const auto& [name, module] : modules) rank = std::max(rank, rank_of(module, file));
  base::require(rank > 0, "{}: expected factors of weights that {} has names for, found none", lora, format.name);
  weights::NamedTensors tensors;
  std::set<std::string> targets, saved;
  bool transposed = false;
  for (const auto& [name, module] : modules) {
    if (rank_of(module, file) == 0) continue;
    const std::string plain = name.substr(0, name.size() - kWeight.size());
    const auto [a, b] = joined_factors(format, module, file, rank, heads_of_layers(model));
    tensors.emplace_back(std::string(kPrefix) + plain + std::string(kA), a.contiguous());
    tensors.emplace_back(std::string(kPrefix) + plain + std::string(kB), b.contiguous());
    targets.insert(plain);
    transposed = transposed || module.rule->transposed;
  }
  add_whole(format, model, file, tensors, saved, lora);
  const auto list = [](const std::set<std::string>& names) {
    base::Node node = base::Node::array();
    for (const std::string& name : names) node.push_back(name);
    return node;
  };
  const base::Node config = base::Node::table({{"peft_type", "LORA"},
                                               {"base_model_name_or_path", base},
                                               {"r", rank},
                                               {"lora_alpha", scale * static_cast<double>(rank)},
                                               {"lora_dropout", 0.0},
                                               {"bias", "none"},
                                               {"fan_in_fan_out", transposed},
                                               {"inference_mode", true},
                                               {"target_modules", list(targets)},
                                               {"modules_to_save", saved.empty() ? base::Node() : list(saved)}});
  base::require_replaceable(out, {kConfig, kTensors});
  base::AtomicFolder folder(out);
  base::write_file_atomic(folder.file(kConfig), base::to_json(config) + "\n");
  weights::write_safetensors(folder.file(kTensors), tensors, {{"format", "pt"}});
  folder.commit();
}

}  // namespace mnemo::bundle
