#include "weights/foreign.h"

#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "core/mapped_tensor.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

/// One tensor in their format: several of ours concatenated along the first dimension.
struct Joined {
  std::string theirs;
  std::vector<at::Tensor> ours;
  NameRule rule;

  /// Ours as one tensor, and the shape that it has in the file.
  at::Tensor whole(int64_t num_heads) const {
    at::Tensor tensor = ours[0];
    if (ours.size() > 1 && rule.by_head) {
      std::vector<at::Tensor> heads;
      for (const at::Tensor& part : ours) heads.push_back(part.unflatten(0, {num_heads, -1}));
      tensor = at::cat(heads, 1).flatten(0, 1);
    } else if (ours.size() > 1) {
      tensor = at::cat(ours, 0);
    }
    if (rule.transposed && tensor.dim() == 2) tensor = tensor.t();
    for (int64_t i = 0; i < rule.leading_ones; ++i) tensor = tensor.unsqueeze(0);
    return tensor;
  }

  /// Gives ours the values of the file's tensor.
  void fill(at::Tensor tensor, int64_t num_heads) const {
    for (int64_t i = 0; i < rule.leading_ones; ++i) tensor = tensor.squeeze(0);
    if (rule.transposed && tensor.dim() == 2) tensor = tensor.t();
    const bool by_head = ours.size() > 1 && rule.by_head;
    if (by_head) tensor = tensor.unflatten(0, {num_heads, -1});
    int64_t row = 0;
    for (const at::Tensor& part : ours) {
      const int64_t rows = by_head ? part.size(0) / num_heads : part.dim() == 0 ? 0 : part.size(0);
      if (ours.size() == 1) {
        core::take_values(part, tensor);
      } else if (by_head) {
        core::take_values(part, tensor.narrow(1, row, rows).flatten(0, 1));
      } else {
        core::take_values(part, tensor.narrow(0, row, rows));
      }
      row += rows;
    }
  }
};

std::vector<Joined> join(const ForeignFormat& format, const NamedTensors& ours,
                         std::vector<std::string>* without_name = nullptr) {
  std::vector<Joined> all;
  std::map<std::string, size_t> places;
  for (const auto& [name, tensor] : ours) {
    std::string theirs;
    const NameRule* rule = nullptr;
    for (const NameRule& candidate : format.tensors) {
      theirs = theirs_by(candidate, name);
      if (theirs.empty()) continue;
      rule = &candidate;
      break;
    }
    if (rule == nullptr && without_name != nullptr) {
      without_name->push_back(name);
      continue;
    }
    base::require(rule != nullptr, "{}: has no name for '{}'", format.name, base::printable(name));
    const auto [place, is_new] = places.try_emplace(theirs, all.size());
    if (is_new) all.push_back({theirs, std::vector<at::Tensor>(static_cast<size_t>(rule->parts)), *rule});
    all[place->second].ours[static_cast<size_t>(rule->part)] = tensor;
  }
  for (const Joined& joined : all) {
    for (const at::Tensor& part : joined.ours) base::ensure(part.defined(), "a part of '{}' is missing", joined.theirs);
  }
  return all;
}

bool matches(std::string_view pattern, std::string_view name) {
  return !pattern.empty() && !theirs_by({pattern, "x"}, name).empty();
}

/// The file with the names that the rules give, of which `wanted` have a place in the model; `unused` get the names of
/// those that have none.
TensorFile under_usual_names(const NameVariants& variants, const TensorFile& file, const std::set<std::string>& wanted,
                             const std::string& where, std::vector<std::string>& unused) {
  TensorFile usual;
  usual.metadata = file.metadata;
  std::set<std::string> taken;
  for (const auto& [name, tensor] : file.tensors) {
    std::string today = name;
    for (const auto& [older, newer] : variants.endings) {
      if (today.ends_with(older)) today.replace(today.size() - older.size(), older.size(), newer);
    }
    std::vector<std::string> readings = {today};
    if (today.starts_with(variants.prefix)) readings.push_back(today.substr(variants.prefix.size()));
    readings.push_back(std::string(variants.prefix).append(today));
    const auto known = std::find_if(readings.begin(), readings.end(),
                                    [&](const std::string& reading) { return wanted.contains(reading); });
    const auto one_of_readings = [&](std::string_view pattern) {
      return std::any_of(readings.begin(), readings.end(),
                         [&](const std::string& reading) { return matches(pattern, reading); });
    };
    if (known != readings.end()) {
      base::require(taken.insert(*known).second, "{}: expected one tensor for '{}', found another, '{}'", where,
                    base::printable(*known), base::printable(name));
      usual.tensors.emplace_back(*known, tensor);
    } else if (std::any_of(variants.ignored.begin(), variants.ignored.end(), one_of_readings)) {
      continue;
    } else if (std::any_of(variants.layers.begin(), variants.layers.end(), one_of_readings)) {
      usual.tensors.emplace_back(name, tensor);  // of a layer that the model lacks: load_into says so
    } else {
      unused.push_back(base::printable(name));
    }
  }
  for (const std::string& name : wanted) {
    if (taken.contains(name)) continue;
    const std::string kept = name_of_shared(variants, file, name, wanted);
    if (kept.empty()) continue;
    usual.tensors.emplace_back(name, file.at(kept, where));
    std::erase(unused, base::printable(kept));
  }
  return usual;
}

/// Our tensors joined to theirs, and the shapes that those have.
struct Targets {
  Targets(const ForeignFormat& format, const NamedTensors& ours, int64_t num_heads, Unnamed unnamed)
      : joined(join(format, ours, unnamed == Unnamed::keep ? &kept : nullptr)) {
    for (Joined one : joined) {
      for (at::Tensor& part : one.ours) part = at::empty(part.sizes(), part.options().device(at::kMeta));
      shapes.emplace_back(one.theirs, one.whole(num_heads));
    }
  }

  /// The file's tensors under their usual names, which are compared with the shapes; `unused` get the names of those
  /// that have no place.
  TensorFile compared(const ForeignFormat& format, const TensorFile& file, const std::string& where, bool finite,
                      std::vector<std::string>& unused) const {
    std::set<std::string> wanted;
    for (const auto& [name, shape] : shapes) wanted.insert(name);
    TensorFile tidy = format.tidy ? format.tidy(file, where) : file;
    if (format.variants) tidy = under_usual_names(*format.variants, tidy, wanted, where, unused);
    load_into(tidy, shapes, where, {.finite = finite, .compare_only = true});
    return tidy;
  }

  std::vector<std::string> kept = {};
  std::vector<Joined> joined;
  NamedTensors shapes = {};  ///< on the meta device
};

}  // namespace

std::string name_of_shared(const NameVariants& variants, const TensorFile& file, const std::string& name,
                           const std::set<std::string>& wanted) {
  const bool prefixed = name.starts_with(variants.prefix);
  for (const std::string& written : {name, prefixed ? name.substr(variants.prefix.size()) : name}) {
    const auto kept = file.metadata.find(written);
    if (kept != file.metadata.end() && file.find(kept->second) != nullptr) return kept->second;
  }
  if (name != variants.embedding) return {};
  for (const std::string_view copy : variants.copies) {
    if (!wanted.contains(std::string(copy)) && file.find(copy) != nullptr) return std::string(copy);
  }
  return {};
}

std::string theirs_by(const NameRule& rule, std::string_view ours) {
  std::vector<std::string_view> numbers;
  std::string_view rest;
  size_t at = 0;
  for (size_t i = 0; i < rule.ours.size(); ++i) {
    if (rule.ours[i] == '*') {
      rest = ours.substr(at);
      at = ours.size();
    } else if (rule.ours[i] == '#') {
      const size_t start = at;
      while (at < ours.size() && std::isdigit(static_cast<unsigned char>(ours[at])) != 0) ++at;
      if (at == start) return "";
      numbers.push_back(ours.substr(start, at - start));
    } else if (at < ours.size() && ours[at] == rule.ours[i]) {
      ++at;
    } else {
      return "";
    }
  }
  if (at != ours.size()) return "";
  std::string theirs;
  size_t next = 0;
  for (const char c : rule.theirs) {
    if (c == '*')
      theirs += rest;
    else if (c == '#')
      theirs += numbers[next++];
    else if (c == '@')
      theirs += std::to_string(std::stoll(std::string(numbers[next++])) + 1);
    else
      theirs += c;
  }
  return theirs;
}

const std::vector<ForeignFormat>& foreign_formats() {
  static const std::vector<ForeignFormat> all = {timm_vit_format(),
                                                 huggingface_vit_format(),
                                                 pvt_format(),
                                                 timm_pvt_v2_format(),
                                                 timm_swin_format(),
                                                 resnet_format(),
                                                 torchvision_detector_format(),
                                                 huggingface_gpt2_format(),
                                                 huggingface_llama_format(),
                                                 huggingface_mistral_format(),
                                                 huggingface_qwen2_format(),
                                                 huggingface_gpt_neox_format(),
                                                 huggingface_bert_format(),
                                                 huggingface_roberta_format(),
                                                 huggingface_deberta_format(),
                                                 huggingface_t5_format(),
                                                 huggingface_t5_gated_format(),
                                                 huggingface_marian_format()};
  return all;
}

const ForeignFormat& foreign_format(std::string_view name) {
  std::vector<std::string> names;
  for (const ForeignFormat& format : foreign_formats()) {
    if (format.name == name) return format;
    names.emplace_back(format.name);
  }
  base::input_error("unknown format {}{}", base::in_quotes(name, '\''), base::suggestion(std::string(name), names));
}

const ForeignFormat* foreign_format_of_backbone(std::string_view backbone) {
  for (const ForeignFormat& format : foreign_formats()) {
    if (format.backbone == backbone) return &format;
  }
  return nullptr;
}

const ForeignFormat* foreign_format_of(const base::Node& config) {
  for (const ForeignFormat& format : foreign_formats()) {
    if (format.claims(config)) return &format;
  }
  std::string known;
  for (const ForeignFormat& format : foreign_formats())
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", format.name, format.about);
  for (const char* key : {"architecture", "architectures", "model_type"}) {
    const base::Node* found = config.find(key);
    if (found == nullptr) continue;
    const base::Node& shown = found->is_array() && found->size() > 0 ? found->items()[0] : *found;
    base::input_error("{}: '{}': unknown architecture {}; files of these can be read: {}", config.place().text(), key,
                      shown.found(), known);
  }
  return nullptr;
}

base::Node parse_model_config(const std::string& text, const std::string& where, uint64_t weights_bytes) {
  base::ReadLimits limits;
  limits.max_bytes = size_t{16} << 20;
  limits.max_values = 2048 + static_cast<int64_t>(weights_bytes / 512);
  return base::parse_json(text, where, limits);
}

NamedModel named_model(const ForeignFormat& format, const layers::ParameterSet& parameters,
                       const core::State& initial) {
  NamedModel named{parameters.named(), {}};
  named.state = initial.map([&](const core::Field& field, const at::Tensor& tensor) {
    const bool known = !field.per_sequence() &&
                       std::any_of(format.tensors.begin(), format.tensors.end(),
                                   [&](const NameRule& rule) { return !theirs_by(rule, field.path).empty(); });
    if (!known) return tensor;
    at::Tensor copy = tensor.clone();
    named.tensors.emplace_back(field.path, copy);
    return copy;
  });
  return named;
}

NamedTensors to_theirs(const ForeignFormat& format, const NamedTensors& ours, int64_t num_heads) {
  const at::NoGradGuard no_grad;
  NamedTensors theirs;
  for (const Joined& joined : join(format, ours)) theirs.emplace_back(joined.theirs, joined.whole(num_heads));
  return theirs;
}

void require_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& shapes,
                    const std::string& where, int64_t num_heads, Unnamed unnamed) {
  std::vector<std::string> unused;
  Targets(format, shapes, num_heads, unnamed).compared(format, file, where, false, unused);
}

std::vector<std::string> load_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& ours,
                                     const std::string& where, int64_t num_heads, Unnamed unnamed) {
  const at::NoGradGuard no_grad;
  Targets targets(format, ours, num_heads, unnamed);
  std::vector<std::string> unused;
  const TensorFile theirs = targets.compared(format, file, where, true, unused);
  if (!unused.empty())
    base::log_info("{}: not used by this model: {}", base::printable(where, 400), base::listed(std::move(unused), 8));
  for (const Joined& joined : targets.joined) joined.fill(theirs.at(joined.theirs, where), num_heads);
  return std::move(targets.kept);
}

}  // namespace mnemo::weights
