#include "train/optimiser_shards.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::train {
namespace {

/// Parts begin at multiples of it, so that the kernels' vectors fall on the same numbers as without parts.
constexpr int64_t kAlignment = 64;

at::Tensor part_of(const at::Tensor& tensor, int64_t first, int64_t count) {
  return tensor.detach().view({-1}).narrow(0, first, count);
}

}  // namespace

OptimiserShards::OptimiserShards(distributed::Group& group, const layers::ParameterSet& parameters)
    : group_(group), whole_(parameters.all()) {
  for (const layers::Parameter& parameter : whole_) {
    const at::Tensor& tensor = parameter.tensor;
    base::ensure(tensor.is_contiguous() && tensor.scalar_type() == whole_.front().tensor.scalar_type(),
                 "parameter '{}' cannot be divided over ranks", parameter.name);
    offsets_.push_back(total_);
    total_ += tensor.numel();
  }
  for (size_t i = 0; i < whole_.size(); ++i) {
    const Range mine = range(i, group_.rank());
    own_.push_back({whole_[i].name, part_of(whole_[i].tensor, mine.first, mine.count), whole_[i].kind});
  }
}

OptimiserShards::Range OptimiserShards::range(size_t i, int64_t rank) const {
  const int64_t numel = whole_[i].tensor.numel();
  const auto cut = [&](int64_t part) {
    if (part == group_.size()) return numel;  // the last part ends with the last parameter
    const int64_t inside = total_ * part / group_.size() - offsets_[i];
    return std::clamp<int64_t>(inside <= 0 ? 0 : inside / kAlignment * kAlignment, 0, numel);
  };
  const int64_t first = cut(rank);
  return {first, cut(rank + 1) - first};
}

void OptimiserShards::take_gradients() {
  for (size_t i = 0; i < whole_.size(); ++i) {
    const at::Tensor& gradient = whole_[i].tensor.grad();
    const Range mine = range(i, group_.rank());
    own_[i].tensor.mutable_grad() = gradient.defined() ? gradient.reshape({-1}).narrow(0, mine.first, mine.count)
                                                       : at::Tensor();
  }
}

void OptimiserShards::exchange() {
  const at::NoGradGuard no_grad;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < whole_.size(); ++i) {
      const Range theirs = range(i, rank);
      if (theirs.count > 0 && whole_[i].tensor.requires_grad())
        parts.push_back(part_of(whole_[i].tensor, theirs.first, theirs.count));
    }
    if (parts.empty()) continue;
    at::Tensor packed = at::cat(parts);
    group_.broadcast(packed, rank);
    if (rank == group_.rank()) continue;
    int64_t first = 0;
    for (at::Tensor& part : parts) {
      part.copy_(packed.narrow(0, first, part.numel()));
      first += part.numel();
    }
  }
}

const layers::Parameter* OptimiserShards::parameter_of(const std::string& state) const {
  const size_t dot = state.find('.');
  const auto found = std::find_if(whole_.begin(), whole_.end(), [&](const layers::Parameter& parameter) {
    return dot != std::string::npos && state.compare(dot + 1, std::string::npos, parameter.name) == 0;
  });
  return found == whole_.end() ? nullptr : &*found;
}

weights::NamedTensors OptimiserShards::gathered(const weights::NamedTensors& state) const {
  weights::NamedTensors whole;
  for (const auto& [name, tensor] : state) {
    const layers::Parameter* parameter = parameter_of(name);
    whole.emplace_back(name,
                       parameter == nullptr ? tensor : at::cat(group_.gather(tensor)).view(parameter->tensor.sizes()));
  }
  return whole;
}

weights::NamedTensors OptimiserShards::room(const weights::NamedTensors& state) const {
  weights::NamedTensors whole;
  for (const auto& [name, tensor] : state) {
    const layers::Parameter* parameter = parameter_of(name);
    whole.emplace_back(name, parameter == nullptr ? tensor : at::empty(parameter->tensor.sizes(), tensor.options()));
  }
  return whole;
}

void OptimiserShards::take(const weights::NamedTensors& whole, const weights::NamedTensors& state) const {
  for (size_t s = 0; s < state.size(); ++s) {
    const layers::Parameter* parameter = parameter_of(state[s].first);
    if (parameter == nullptr) continue;
    const Range mine = range(static_cast<size_t>(parameter - whole_.data()), group_.rank());
    at::Tensor(state[s].second).copy_(part_of(whole[s].second, mine.first, mine.count));
  }
}

}  // namespace mnemo::train
