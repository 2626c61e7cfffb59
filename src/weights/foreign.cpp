#include "weights/foreign.h"

#include <torch/types.h>

#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace mnemo::weights {
namespace {

/// One tensor in their format: several of ours concatenated along the first dimension.
struct Joined {
  std::string theirs;
  std::vector<at::Tensor> ours;
  int64_t leading_ones = 0;

  at::Tensor shaped(at::Tensor tensor) const {
    for (int64_t i = 0; i < leading_ones; ++i) tensor = tensor.unsqueeze(0);
    return tensor;
  }
};

std::vector<Joined> join(const ForeignFormat& format, const NamedTensors& ours) {
  std::vector<Joined> all;
  for (const auto& [name, tensor] : ours) {
    std::string theirs;
    const NameRule* rule = nullptr;
    for (const NameRule& candidate : format.tensors) {
      theirs = theirs_by(candidate, name);
      if (theirs.empty()) continue;
      rule = &candidate;
      break;
    }
    base::require(rule != nullptr, "{}: has no name for '{}'", format.name, base::printable(name));
    auto at = std::find_if(all.begin(), all.end(), [&](const Joined& other) { return other.theirs == theirs; });
    if (at == all.end()) {
      at = all.insert(all.end(),
                      Joined{theirs, std::vector<at::Tensor>(static_cast<size_t>(rule->parts)), rule->leading_ones});
    }
    at->ours[static_cast<size_t>(rule->part)] = tensor;
  }
  for (const Joined& joined : all) {
    for (const at::Tensor& part : joined.ours) base::ensure(part.defined(), "a part of '{}' is missing", joined.theirs);
  }
  return all;
}

}  // namespace

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
  static const std::vector<ForeignFormat> all = {timm_vit_format(), huggingface_vit_format(), pvt_format(),
                                                 timm_pvt_v2_format(), timm_swin_format()};
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

base::Node parse_model_config(const std::string& text, const std::string& where) {
  base::ReadLimits limits;
  limits.max_bytes = size_t{16} << 20;
  limits.max_values = int64_t{1} << 18;
  return base::parse_json(text, where, limits);
}

NamedTensors to_theirs(const ForeignFormat& format, const NamedTensors& ours) {
  const at::NoGradGuard no_grad;
  NamedTensors theirs;
  for (const Joined& joined : join(format, ours)) {
    theirs.emplace_back(joined.theirs,
                        joined.shaped(joined.ours.size() == 1 ? joined.ours[0] : at::cat(joined.ours, 0)));
  }
  return theirs;
}

void load_theirs(const ForeignFormat& format, const TensorFile& file, const NamedTensors& ours,
                 const std::string& where) {
  const at::NoGradGuard no_grad;
  const std::vector<Joined> all = join(format, ours);
  NamedTensors targets;
  for (const Joined& joined : all) {
    std::vector<int64_t> shape = joined.ours[0].sizes().vec();
    if (joined.ours.size() > 1) {
      shape[0] = 0;
      for (const at::Tensor& part : joined.ours) shape[0] += part.size(0);
    }
    targets.emplace_back(joined.theirs, joined.shaped(at::empty(shape, joined.ours[0].options().requires_grad(false))));
  }
  load_into(format.tidy ? format.tidy(file, where) : file, targets, where, {.finite = true});
  for (size_t i = 0; i < all.size(); ++i) {
    int64_t row = 0;
    at::Tensor whole = targets[i].second;
    for (int64_t n = 0; n < all[i].leading_ones; ++n) whole = whole.squeeze(0);
    for (at::Tensor part : all[i].ours) {
      if (all[i].ours.size() == 1) {
        part.copy_(whole);
      } else {
        part.copy_(whole.narrow(0, row, part.size(0)));
        row += part.size(0);
      }
    }
  }
}

}  // namespace mnemo::weights
