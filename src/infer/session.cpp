#include "infer/session.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::infer {
namespace {

std::shared_ptr<const core::Model> checked(std::shared_ptr<const core::Model> model) {
  base::ensure(model != nullptr, "session: expected a model, found none");
  models::require_next_token_model(*model, "session");
  return model;
}

}  // namespace

Session::Session(std::shared_ptr<const core::Model> model, const SamplingOptions& sampling)
    : model_(checked(std::move(model))), sampler_(sampling) {
  const c10::InferenceMode inference;
  progress_ = begin(*model_);
}

Session::Session(std::shared_ptr<const Engine> engine, const SamplingOptions& sampling)
    : engine_(std::move(engine)), sampler_(sampling) {
  base::ensure(engine_ != nullptr, "a session needs an engine");
  model_ = engine_->model();
  decoding_ = Decoding{engine_->begin(), {}};
}

void Session::feed(std::span<const int64_t> tokens) {
  if (!tokens.empty()) run(tokens);
}

/// Runs the pending token, then `tokens`.
void Session::run(std::span<const int64_t> tokens) {
  if (!engine_) {
    const c10::InferenceMode inference;
    if (tokens.empty() && progress_.pending < 0) return;
    infer::run(*model_, progress_, tokens);
    return;
  }
  const int64_t pending = progress_.pending;
  if (tokens.empty() && pending < 0) return;
  require_tokens(*model_, tokens);
  std::vector<int64_t> all;
  if (pending >= 0 && !tokens.empty()) {
    all.push_back(pending);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  decoding_->logits.resize(static_cast<size_t>(model_->vocab_size()));
  std::span<const int64_t> left = !all.empty()   ? std::span<const int64_t>(all)
                                  : pending >= 0 ? std::span<const int64_t>(&pending, 1)
                                                 : tokens;
  while (!left.empty()) {
    const size_t room = static_cast<size_t>(model_->segment_size() - progress_.used);
    const size_t size = progress_.reset_segments ? std::min(left.size(), room) : left.size();
    if (progress_.reset_segments && progress_.used == 0) decoding_->sequence = engine_->begin();
    const Engine::Step step{&decoding_->sequence, left.first(size), decoding_->logits.data()};
    engine_->run({&step, 1});
    progress_.used = (progress_.used + static_cast<int64_t>(size)) % model_->segment_size();
    left = left.subspan(size);
  }
  for (const int64_t token : tokens) progress_.append(token);
  progress_.pending = -1;
}

void Session::feed(const at::Tensor& tokens) {
  if (tokens.dim() != 1 || !at::isIntegralType(tokens.scalar_type(), false)) {
    throw base::ShapeError(fmt::format("[session] expected tokens [T] of an integer type, found {} of {}",
                                       c10::str(tokens.sizes()), c10::toString(tokens.scalar_type())));
  }
  const at::Tensor plain = tokens.to(at::kCPU, at::kLong).contiguous();
  feed(std::span(plain.const_data_ptr<int64_t>(), static_cast<size_t>(plain.numel())));
}

int64_t Session::pick() const {
  const auto draw = static_cast<uint64_t>(progress_.position);
  return engine_ ? sampler_.pick(std::span<const float>(decoding_->logits), draw)
                 : sampler_.pick(progress_.logits, draw);
}

int64_t Session::next() {
  base::require(progress_.position > 0, "session: nothing to continue; expected at least one token to be fed first");
  run({});
  const int64_t token = pick();
  progress_.pending = token;
  progress_.append(token);
  return token;
}

at::Tensor Session::logits() {
  base::require(progress_.position > 0, "session: nothing to continue; expected at least one token to be fed first");
  run({});
  if (!engine_) return progress_.logits;
  const c10::InferenceMode inference;
  return at::from_blob(decoding_->logits.data(), {model_->vocab_size()}, at::kFloat).clone();
}

core::State Session::state() const {
  if (!engine_) return progress_.state;
  const c10::InferenceMode inference;
  return engine_->export_state(decoding_->sequence);
}

int64_t Session::num_bytes() const {
  return engine_ ? decoding_->sequence.num_bytes() : core::num_bytes(progress_.state, core::Lifetime::sequence);
}

int64_t Session::generate(int64_t max_tokens, const std::function<bool(int64_t)>& on_token,
                          std::span<const int64_t> stop) {
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
  mark.decoding_ = decoding_;
  return mark;
}

void Session::rewind(const Mark& mark) {
  base::require(mark.model_ == model_ && mark.decoding_.has_value() == decoding_.has_value(),
                "session: the mark belongs to a session of another model");
  progress_ = mark.progress_;
  decoding_ = mark.decoding_;
}

Session fastest_session(std::shared_ptr<const models::Model> model, const SamplingOptions& sampling) {
  if (unsupported_reason(*model).empty()) return Session(std::make_shared<const Engine>(std::move(model)), sampling);
  return Session(std::move(model), sampling);
}

}  // namespace mnemo::infer
