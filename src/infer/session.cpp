#include "infer/session.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "models/model.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

std::shared_ptr<const core::Model> checked(std::shared_ptr<const core::Model> model) {
  base::ensure(model != nullptr, "session: expected a model, found none");
  models::require_next_token_model(*model, "session");
  return model;
}

const Engine& checked(const std::shared_ptr<const Engine>& engine) {
  base::ensure(engine != nullptr, "a session needs an engine");
  return *engine;
}

}  // namespace

Session::Session(std::shared_ptr<const core::Model> model, const GenerateOptions& sampling)
    : model_(checked(std::move(model))), fingerprint_(model_), sampler_(sampling) {
  const c10::InferenceMode inference;
  progress_ = begin(*model_);
}

Session::Session(std::shared_ptr<const Engine> engine, const GenerateOptions& sampling)
    : model_(checked(engine).model()),
      engine_(std::move(engine)),
      fingerprint_(engine_->fingerprint()),
      sampler_(sampling) {
  decoding_ = Decoding{engine_->begin(), {}};
}

void Session::feed(std::span<const int64_t> tokens) {
  if (!tokens.empty()) run(tokens);
}

/// Runs the pending token, then `tokens`.
void Session::run(std::span<const int64_t> tokens, const EachLogits& each) {
  if (tokens.empty() && progress_.pending < 0) return;
  if (engine_) {
    run_engine(tokens, each);
  } else {
    const c10::InferenceMode inference;
    if (TokenGraphs* graphs = tokens.empty() ? graphs_.of(model_) : nullptr) {
      base::stop_if_asked(sampling().should_stop, "session");
      graphs->run_pending(progress_);
    } else {
      infer::run(*model_, progress_, tokens, each, sampling().should_stop);
    }
    if (counts()) counts_.add_read(tokens);
  }
}

void Session::run_engine(std::span<const int64_t> tokens, const EachLogits& each) {
  const int64_t pending = progress_.pending;
  require_tokens(*model_, tokens);
  std::vector<int64_t> all;
  if (pending >= 0 && !tokens.empty()) {
    all.push_back(pending);
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  std::vector<float>& logits = decoding_->logits;
  logits.resize(static_cast<size_t>(core::token_input(model_->input()).vocab_size));
  std::span<const int64_t> left = !all.empty()   ? std::span<const int64_t>(all)
                                  : pending >= 0 ? std::span<const int64_t>(&pending, 1)
                                                 : tokens;
  const base::ShouldStop& should_stop = sampling().should_stop;
  constexpr auto kAsked = static_cast<size_t>(Engine::kRows);
  // All or none: they are run in several parts.
  if (!progress_.reset_segments) engine_->require_places(decoding_->sequence, static_cast<int64_t>(left.size()));
  const auto before = should_stop && left.size() > 1 ? std::optional(mark()) : std::nullopt;
  while (!left.empty()) {
    if (const int reason = should_stop ? should_stop() : 0; reason != 0) {
      if (before) rewind(*before);
      throw base::Stopped(reason, "session: stopped");
    }
    const size_t room = static_cast<size_t>(core::token_input(model_->input()).segment_size - progress_.used);
    const size_t most = should_stop ? std::min(left.size(), kAsked) : left.size();
    const size_t size = progress_.reset_segments ? std::min(most, room) : most;
    if (progress_.reset_segments && progress_.used == 0) decoding_->sequence = engine_->begin();
    if (each) {
      const c10::InferenceMode inference;
      engine_->run(decoding_->sequence, left.first(size), [&](const float* row) {
        std::copy_n(row, logits.size(), logits.data());
        each(at::from_blob(logits.data(), {1, core::token_input(model_->input()).vocab_size}, at::kFloat));
      });
    } else {
      const Engine::Step step{&decoding_->sequence, left.first(size), logits.data()};
      engine_->run({&step, 1});
    }
    ran(left.first(size));
    left = left.subspan(size);
  }
}

void Session::ran(std::span<const int64_t> tokens) {
  if (tokens.empty()) return;
  progress_.used = (progress_.used + static_cast<int64_t>(tokens.size())) %
                   core::token_input(model_->input()).segment_size;
  if (progress_.pending >= 0) tokens = tokens.subspan(1);
  progress_.pending = -1;
  for (const int64_t token : tokens) progress_.append(token);
  if (counts()) counts_.add_read(tokens);
}

std::vector<double> Session::score(std::span<const int64_t> tokens) {
  require_tokens(*model_, tokens);
  std::vector<double> scores;
  if (tokens.empty()) return scores;
  const auto add = [&](const at::Tensor& logits) {
    const at::Tensor rows = at::log_softmax(logits.to(at::kCPU, at::kDouble), 1);
    for (int64_t row = 0; row < rows.size(0) && scores.size() < tokens.size(); ++row)
      scores.push_back(rows[row][tokens[scores.size()]].item<double>());
  };
  if (progress_.position > 0) {
    add(logits().unsqueeze(0));
  } else {
    scores.push_back(std::numeric_limits<double>::quiet_NaN());
  }
  run(tokens, add);
  for (size_t i = progress_.position > static_cast<int64_t>(tokens.size()) ? 0 : 1; i < scores.size(); ++i) {
    if (std::isnan(scores[i])) throw base::NotFinite(fmt::format("session: the logits of token {} are not finite", i));
  }
  return scores;
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
  return engine_ ? sampler_.pick(std::span<const float>(decoding_->logits), draw, counts_)
                 : sampler_.pick(progress_.logits, draw, counts_);
}

int64_t Session::next() {
  base::require(progress_.position > 0, "session: nothing to continue; expected at least one token to be fed first");
  run({});
  const int64_t token = pick();
  append(token);
  return token;
}

int64_t Session::can_write(int64_t read, int64_t wanted) const {
  if (!engine_ || progress_.reset_segments || wanted == 0) return wanted;
  const int64_t before = read + (progress_.pending >= 0 ? 1 : 0);
  const int64_t most = engine_->places(decoding_->sequence, before, wanted);
  if (most == 0) engine_->require_places(decoding_->sequence, before + 1);
  return most;
}

void Session::append(int64_t token) {
  progress_.pending = token;
  progress_.append(token);
  if (counts()) counts_.add_written(token);
}

Session Session::fresh() const {
  Session session = engine_ ? Session(engine_, sampling()) : Session(model_, sampling());
  session.sampler_ = sampler_;
  session.fingerprint_ = fingerprint_;
  session.progress_.reset_segments = progress_.reset_segments;
  return session;
}

Session Session::fork(int64_t seed) const {
  Session copy = *this;
  GenerateOptions options = sampling();
  options.seed = seed;
  copy.set_sampling(options);
  return copy;
}

at::Tensor Session::logits() {
  base::require(progress_.position > 0, "session: nothing to continue; expected at least one token to be fed first");
  run({});
  if (!engine_) return progress_.logits;
  const c10::InferenceMode inference;
  return at::from_blob(decoding_->logits.data(), {core::token_input(model_->input()).vocab_size}, at::kFloat).clone();
}

core::State Session::state() const {
  if (!engine_) return progress_.state;
  const c10::InferenceMode inference;
  return engine_->export_state(decoding_->sequence);
}

int64_t Session::state_bytes() const {
  return engine_ ? decoding_->sequence.num_bytes() : core::num_bytes(progress_.state, core::Lifetime::sequence);
}

int64_t Session::num_bytes() const {
  const size_t logits = engine_                      ? decoding_->logits.size() * sizeof(float)
                        : progress_.logits.defined() ? progress_.logits.nbytes()
                                                     : 0;
  return state_bytes() + static_cast<int64_t>(logits) + counts_.num_bytes();
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
  mark.counts_ = counts_;
  mark.decoding_ = decoding_;
  if (engine_) mark.options_ = engine_->options();
  return mark;
}

void Session::rewind(const Mark& mark) {
  base::require(mark.model_ == model_ && mark.decoding_.has_value() == decoding_.has_value(),
                "session: the mark belongs to a session of another model");
  base::require(!engine_ || mark.options_ == engine_->options(),
                "session: the mark belongs to a session of another precision");
  progress_ = mark.progress_;
  counts_ = mark.counts_;
  decoding_ = mark.decoding_;
}

Session fastest_session(std::shared_ptr<const models::Model> model, const GenerateOptions& sampling) {
  if (unsupported_reason(*model).empty()) return Session(std::make_shared<const Engine>(std::move(model)), sampling);
  return Session(std::move(model), sampling);
}

}  // namespace mnemo::infer
