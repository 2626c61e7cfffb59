#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "infer/engine.h"
#include "search/step_decoder.h"

namespace mnemo::infer {

/// Steps the hypotheses of a beam search in the decoding engine.
class EngineSearch final : public search::StepDecoder {
 public:
  explicit EngineSearch(std::shared_ptr<const Engine> engine) : engine_(std::move(engine)) {}
  int64_t vocabulary() const override;
  std::optional<int64_t> max_tokens() const override;
  void start(const at::Tensor& source, const at::Tensor& valid) override;
  void start(const core::State& read) override { sequences_ = engine_->begin(read); }
  at::Tensor log_probabilities(std::span<const int64_t> last) override;
  void select(std::span<const int64_t> parents) override;

 private:
  std::shared_ptr<const Engine> engine_;
  std::vector<EngineSequence> sequences_;
  std::vector<Engine::Step> steps_;
};

}  // namespace mnemo::infer
