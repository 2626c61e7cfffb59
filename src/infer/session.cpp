#include "infer/session.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::infer {
namespace {

std::shared_ptr<const core::Model> checked(std::shared_ptr<const core::Model> model) {
  base::ensure(model != nullptr, "a session needs a model");
  return model;
}

}  // namespace

Session::Session(std::shared_ptr<const core::Model> model, const SamplingOptions& sampling)
    : model_(checked(std::move(model))), sampler_(sampling) {
  const c10::InferenceMode inference;
  progress_ = begin(*model_);
}

void Session::feed(std::span<const int64_t> tokens) {
  if (tokens.empty()) return;
  const c10::InferenceMode inference;
  run(*model_, progress_, tokens);
}

void Session::feed(const at::Tensor& tokens) {
  if (tokens.dim() != 1 || !at::isIntegralType(tokens.scalar_type(), false)) {
    throw base::ShapeError(fmt::format("[session] expected tokens [T] of an integer type, found {} of {}",
                                       c10::str(tokens.sizes()), c10::toString(tokens.scalar_type())));
  }
  const at::Tensor plain = tokens.to(at::kCPU, at::kLong).contiguous();
  feed(std::span(plain.const_data_ptr<int64_t>(), static_cast<size_t>(plain.numel())));
}

int64_t Session::next() {
  const int64_t token = sampler_.pick(logits(), static_cast<uint64_t>(progress_.position));
  progress_.pending = token;
  progress_.append(token);
  return token;
}

at::Tensor Session::logits() {
  base::require(progress_.position > 0, "session: nothing to continue; expected at least one token to be fed first");
  const c10::InferenceMode inference;
  run_pending(*model_, progress_);
  return progress_.logits;
}

int64_t Session::generate(int64_t max_tokens, const std::function<bool(int64_t)>& on_token, std::span<const int64_t> stop) {
  int64_t count = 0;
  while (count < max_tokens) {
    const int64_t token = next();
    if (std::find(stop.begin(), stop.end(), token) != stop.end()) break;
    ++count;
    if (!on_token(token)) break;
  }
  return count;
}

std::vector<int64_t> Session::recent() const {
  std::vector<int64_t> tokens;
  for (const int64_t token : progress_.recent) {
    if (token >= 0) tokens.push_back(token);
  }
  return tokens;
}

Session::Mark Session::mark() const {
  Mark mark;
  mark.model_ = model_;
  mark.progress_ = progress_;
  return mark;
}

void Session::rewind(const Mark& mark) {
  base::require(mark.model_ == model_, "session: the mark belongs to a session of another model");
  progress_ = mark.progress_;
}

}  // namespace mnemo::infer
