#include "weights/lora.h"

#include <torch/types.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "base/number.h"
#include "base/printable.h"

namespace mnemo::weights {

at::Tensor lora_weight(const at::Tensor& start, const at::Tensor& a, const at::Tensor& b, double scale) {
  return start + at::matmul(b, a) * scale;
}

std::string digest_of(const std::map<std::string, at::Tensor>& weights) {
  base::Sha256 digest;
  for (const auto& [name, weight] : weights) {
    const at::Tensor plain = weight.detach().to(at::kCPU).contiguous();
    digest.update(plain.const_data_ptr(), plain.nbytes());
  }
  return digest.hex();
}

std::string digest_of_rest(const TensorFile& file, const NamedTensors& model) {
  std::map<std::string, at::Tensor> rest;
  for (const auto& [name, tensor] : model) {
    if (file.find(name) == nullptr && file.find(name + std::string(kLoraA)) == nullptr) rest[name] = tensor;
  }
  return digest_of(rest);
}

double lora_scale(const TensorFile& file, const std::string& path) {
  const auto written = file.metadata.find(kLoraScale);
  base::require(written != file.metadata.end(), "{}: expected the metadata '{}', found none; this is no file of LoRA",
                path, kLoraScale);
  try {
    return base::parse_number(written->second);
  } catch (const base::InputError& error) {
    base::input_error("{}: the metadata '{}': {}", path, kLoraScale, error.what());
  }
}

namespace {

struct Move {
  at::Tensor target, a, b;  // without b the target becomes a
};

/// What the file changes, checked against the model.
std::vector<Move> moves_of(const TensorFile& file, const NamedTensors& model, const std::string& path) {
  std::vector<Move> moves;
  std::map<std::string, at::Tensor> starts;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.ends_with(kLoraB)) {
      file.at(name.substr(0, name.size() - kLoraB.size()).append(kLoraA), path);
      continue;
    }
    const bool factor = name.ends_with(kLoraA);
    const std::string weight = factor ? name.substr(0, name.size() - kLoraA.size()) : name;
    const auto found = std::find_if(model.begin(), model.end(), [&](const auto& one) { return one.first == weight; });
    base::require(
        found != model.end(),
        "{}: the model has no parameter '{}': expected the one that the training began with, with its head and its "
        "memory; the lora.safetensors of the run's folder, beside its model, names them",
        path, base::printable(weight));
    const at::Tensor& target = found->second;
    const at::Tensor b = factor ? file.at(weight + std::string(kLoraB), path) : at::Tensor();
    const bool fits = factor ? tensor.dim() == 2 && b.dim() == 2 && b.size(1) == tensor.size(0) &&
                                   target.sizes() == at::IntArrayRef({b.size(0), tensor.size(1)})
                             : tensor.sizes() == target.sizes();
    base::require(fits, "{}: '{}': expected the shape of the model's {}, found {}", path, name,
                  c10::str(target.sizes()), c10::str(tensor.sizes()));
    if (factor) starts[weight] = target;
    moves.push_back({target, tensor, b});
  }
  const auto start = file.metadata.find(kLoraStart);
  base::require(start == file.metadata.end() || digest_of(starts) == start->second,
                "{}: expected the model that its training started from, found another, or one that it is merged into "
                "already: the weights that it changes differ from the digest '{}' of its metadata",
                path, kLoraStart);
  const auto rest = file.metadata.find(kLoraRest);
  base::require(rest == file.metadata.end() || digest_of_rest(file, model) == rest->second,
                "{}: expected the model that its training started from, found another: the weights that it leaves "
                "alone differ from the digest '{}' of its metadata",
                path, kLoraRest);
  return moves;
}

}  // namespace

void require_lora(const TensorFile& file, const NamedTensors& model, const std::string& path) {
  lora_scale(file, path);
  moves_of(file, model, path);
}

void apply_lora(const TensorFile& file, const NamedTensors& model, const std::string& path) {
  const double scale = lora_scale(file, path);
  const at::NoGradGuard no_grad;
  for (const auto& [target, a, b] : moves_of(file, model, path))
    at::Tensor(target).copy_(b.defined() ? lora_weight(target, a.to(target.options()), b.to(target.options()), scale)
                                         : a);
}

}  // namespace mnemo::weights
