#include "distributed/reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/error.h"

namespace mnemo::distributed {

/// On a leaf: called when its gradient has been accumulated into.
class Reducer::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Reducer& reducer, size_t parameter) : reducer_(reducer), parameter_(parameter) {}
  void operator()(const torch::autograd::Variable&) override {
    if (reducer_.armed_) reducer_.ready(parameter_);
  }

 private:
  Reducer& reducer_;
  size_t parameter_;
};

Reducer::Reducer(Group& group, std::vector<at::Tensor> parameters, const ReducerOptions& options)
    : group_(group), parameters_(std::move(parameters)), options_(options), bucket_of_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
  }
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  divide(order);
}

Reducer::~Reducer() {
  for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void Reducer::divide(const std::vector<size_t>& order) {
  buckets_.clear();
  int64_t bytes = 0;
  for (const size_t index : order) {
    const at::Tensor& parameter = parameters_[index];
    const int64_t limit = buckets_.size() <= 1 ? options_.first_bucket_bytes : options_.bucket_bytes;
    const auto size = static_cast<int64_t>(parameter.nbytes());
    if (buckets_.empty() || bytes + size > limit ||
        parameters_[buckets_.back().parameters.front()].scalar_type() != parameter.scalar_type()) {
      buckets_.emplace_back();
      bytes = 0;
    }
    bytes += size;
    buckets_.back().parameters.push_back(index);
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    int64_t length = 0;
    for (const size_t index : bucket.parameters) {
      bucket_of_[index] = b;
      bucket.offsets.push_back(length);
      length += parameters_[index].numel();
    }
    bucket.flat = at::empty({length}, parameters_[bucket.parameters.front()].options().requires_grad(false));
    bucket.packed = options_.bf16 ? at::empty({length}, bucket.flat.options().dtype(at::kBFloat16)) : bucket.flat;
  }
}

std::vector<std::vector<size_t>> Reducer::buckets() const {
  std::vector<std::vector<size_t>> all;
  for (const Bucket& bucket : buckets_) all.push_back(bucket.parameters);
  return all;
}

at::Tensor Reducer::order() const {
  std::vector<int64_t> order;
  for (const Bucket& bucket : buckets_) order.insert(order.end(), bucket.parameters.begin(), bucket.parameters.end());
  return learnt_ ? at::tensor(order, at::kLong) : at::empty({0}, at::kLong);
}

void Reducer::take_order(const at::Tensor& order) {
  const auto count = static_cast<int64_t>(parameters_.size());
  base::require(order.scalar_type() == at::kLong && order.dim() == 1 && order.size(0) == count &&
                    at::equal(std::get<0>(order.sort()), at::arange(count, at::kLong)),
                "the order of the gradients: expected each of {} parameters once", count);
  const at::Tensor numbers = order.contiguous();
  const auto* read = numbers.const_data_ptr<int64_t>();
  divide({read, read + count});
  learnt_ = true;
}

void Reducer::arm() {
  is_ready_.assign(parameters_.size(), false);
  finished_.clear();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  launched_ = 0;
  armed_ = true;
}

void Reducer::ready(size_t parameter) {
  if (is_ready_[parameter]) return;
  is_ready_[parameter] = true;
  finished_.push_back(parameter);
  --buckets_[bucket_of_[parameter]].missing;
  if (learnt_) launch_full();
}

/// All ranks reduce the buckets in the same order, so a full one waits for those before it.
void Reducer::launch_full() {
  while (launched_ < buckets_.size() && buckets_[launched_].missing == 0) launch(buckets_[launched_++]);
}

void Reducer::launch(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < bucket.parameters.size(); ++i) {
    const at::Tensor& parameter = parameters_[bucket.parameters[i]];
    const at::Tensor room = bucket.flat.narrow(0, bucket.offsets[i], parameter.numel());
    if (parameter.grad().defined()) {
      room.copy_(parameter.grad().reshape({-1}));
    } else {
      room.zero_();
    }
  }
  if (options_.bf16) bucket.packed.copy_(bucket.flat);
  bucket.pending = group_.start_sum(bucket.packed);
}

void Reducer::finish(at::Tensor& sums) {
  if (!armed_) arm();
  armed_ = false;
  const at::NoGradGuard no_grad;
  if (!learnt_) learn_order();
  while (launched_ < buckets_.size()) launch(buckets_[launched_++]);
  // Whether any rank has a gradient: the optimizer leaves a parameter without one alone.
  const auto count = static_cast<int64_t>(parameters_.size());
  at::Tensor small = at::zeros({count + sums.numel()}, at::kDouble);
  auto* values = small.mutable_data_ptr<double>();
  for (size_t i = 0; i < parameters_.size(); ++i) values[i] = parameters_[i].grad().defined() ? 1 : 0;
  small.narrow(0, count, sums.numel()).copy_(sums.reshape({-1}));
  const std::unique_ptr<Pending> last = group_.start_sum(small);
  const auto began = std::chrono::steady_clock::now();
  for (Bucket& bucket : buckets_) bucket.pending->wait();
  last->wait();
  waited_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  sums.copy_(small.narrow(0, count, sums.numel()).view(sums.sizes()));
  for (Bucket& bucket : buckets_) {
    bucket.pending.reset();
    if (options_.bf16) bucket.flat.copy_(bucket.packed);
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const size_t index = bucket.parameters[i];
      if (values[index] == 0) continue;
      at::Tensor& grad = parameters_[index].mutable_grad();
      if (!grad.defined()) grad = at::empty_like(parameters_[index]);
      grad.copy_(bucket.flat.narrow(0, bucket.offsets[i], grad.numel()).view(grad.sizes()));
    }
  }
}

void Reducer::learn_order() {
  learnt_ = true;
  std::vector<size_t> order = finished_;
  // Parameters that the last pass did not reach are complete before it.
  std::vector<size_t> others;
  for (size_t i = parameters_.size(); i-- > 0;) {
    if (std::find(order.begin(), order.end(), i) == order.end()) others.push_back(i);
  }
  order.insert(order.end(), others.begin(), others.end());
  at::Tensor numbers = at::empty({static_cast<int64_t>(order.size())}, at::kLong);
  std::copy(order.begin(), order.end(), numbers.mutable_data_ptr<int64_t>());
  const at::Tensor first = group_.gather(numbers).front();
  const auto* read = first.const_data_ptr<int64_t>();
  divide({read, read + first.numel()});
}

}  // namespace mnemo::distributed
