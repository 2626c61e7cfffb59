#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "train/trainer.h"

// The parts of a training that the ranks of a group do together.
namespace mnemo::train {
namespace {

/// 64 bits that stand for the bytes of a tensor.
int64_t fingerprint(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
  const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
  base::Fingerprint sum;
  for (size_t left = plain.nbytes(); left > 0;) {
    uint64_t word = 0;
    const size_t count = std::min(left, sizeof(word));
    std::memcpy(&word, bytes, count);
    sum.mix(word);
    bytes += count;
    left -= count;
  }
  return static_cast<int64_t>(sum.value());
}

}  // namespace

/// The gradients and losses of all ranks.
void Trainer::reduce(StepOutcome& outcome) {
  std::vector<double> own = {outcome.loss, outcome.total};
  own.insert(own.end(), outcome.parts.begin(), outcome.parts.end());
  at::Tensor sums = at::tensor(own, at::kDouble);
  reducer_->finish(sums);
  waited_ += reducer_->waited();
  outcome.loss = sums[0].item<double>();
  outcome.total = sums[1].item<double>();
  for (size_t i = 0; i < outcome.parts.size(); ++i) outcome.parts[i] = sums[static_cast<int64_t>(i) + 2].item<double>();
}

at::Tensor Trainer::sum_over_ranks(const at::Tensor& value) {
  at::Tensor sum = value.clone(at::MemoryFormat::Contiguous);
  group_->sum(sum);
  return sum;
}

/// A rank without a row drew no masks. The last rank has a row of every part, so its generators have drawn them all.
void Trainer::share_generators() {
  for (at::Generator& generator : generators()) generator.set_state(group_->gather(generator.get_state()).back());
}

std::vector<at::Generator> Trainer::generators() const {
  std::vector<at::Generator> all = {generator_};
  const at::Device device = core::device_of(model_);
  if (!device.is_cpu()) all.push_back(at::globalContext().defaultGenerator(device));
  return all;
}

/// The parameters and generators of all ranks must have the same bits.
void Trainer::require_equal_ranks() {
  std::vector<std::string> names;
  std::vector<int64_t> prints;
  for (const auto& [name, tensor] : model_.parameters().named()) {
    names.push_back("parameter '" + name + "'");
    prints.push_back(fingerprint(tensor));
  }
  for (const at::Generator& generator : generators()) {
    names.emplace_back("random numbers");
    prints.push_back(fingerprint(generator.get_state()));
  }
  at::Tensor mine = at::empty({static_cast<int64_t>(prints.size())}, at::kLong);
  std::copy(prints.begin(), prints.end(), mine.mutable_data_ptr<int64_t>());
  const std::vector<at::Tensor> all = group_->gather(mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    base::require(all[rank].sizes() == all[0].sizes(), "training: rank {} has {} parameters and generators, rank 0 {}",
                  rank, all[rank].numel(), all[0].numel());
    for (size_t i = 0; i < names.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      base::require(all[rank][index].item<int64_t>() == all[0][index].item<int64_t>(),
                    "training: step {}: the {} of rank {} is not that of rank 0: the ranks have drifted apart; resume "
                    "from an earlier checkpoint, on machines of the same kind",
                    steps_, names[i], rank);
    }
  }
}

/// The carried state of the whole batch, part A's under "part.A."; on ranks other than 0 nothing.
weights::NamedTensors Trainer::carried_state() {
  const auto name = [](size_t part, const std::string& path) { return fmt::format("part.{}.{}", part, path); };
  weights::NamedTensors carried;
  for (size_t part = 0; part < states_.size(); ++part) {
    if (!group_) {
      for (const auto& [path, tensor] : core::save(states_[part])) carried.emplace_back(name(part, path), tensor);
      continue;
    }
    std::vector<std::map<std::string, at::Tensor>> ranks(static_cast<size_t>(group_->size()));
    for (const auto& [path, tensor] : core::save(states_[part])) {
      const std::vector<at::Tensor> all = group_->gather(tensor);
      for (size_t rank = 0; rank < all.size(); ++rank) ranks[rank][path] = all[rank];
    }
    if (group_->rank() != 0) continue;
    std::vector<core::State> states;
    for (const auto& tensors : ranks) {
      states.push_back(core::load(states_[part], [&](const std::string& path) {
        const auto found = tensors.find(path);
        return found == tensors.end() ? at::Tensor() : found->second;
      }));
    }
    for (const auto& [path, tensor] : core::save(core::concat_batch(states)))
      carried.emplace_back(name(part, path), tensor);
  }
  return carried;
}

}  // namespace mnemo::train
