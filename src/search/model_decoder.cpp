#include <torch/types.h>

#include <utility>

#include "core/input.h"
#include "core/mode.h"
#include "core/model.h"
#include "core/state.h"
#include "search/step_decoder.h"

namespace mnemo::search {
namespace {

class ModelDecoder final : public StepDecoder {
 public:
  explicit ModelDecoder(const core::Model& model) : model_(model), reader_(core::source_reader(model)) {}
  int64_t vocabulary() const override { return core::pair_input(model_.input()).target_vocab_size; }
  std::optional<int64_t> max_tokens() const override { return core::pair_input(model_.input()).max_target; }
  void start(const at::Tensor& source, const at::Tensor& valid) override {
    start(reader_.read_source(source, valid, core::Mode::evaluate, model_.initial_state(source.size(0))));
  }
  void start(const core::State& read) override {
    state_ = read;
    begins_ = true;
  }
  at::Tensor log_probabilities(std::span<const int64_t> last) override {
    core::Segment segment;
    segment
        .tokens = at::tensor(at::IntArrayRef(last.data(), last.size()), at::kLong).to(device_of(model_)).unsqueeze(1);
    segment.part = {std::exchange(begins_, false), false};
    core::StepResult step = model_.forward(segment, state_);
    state_ = std::move(step.state);
    return at::log_softmax(model_.logits(step.hidden).squeeze(1), -1).to(at::kCPU).contiguous();
  }
  void select(std::span<const int64_t> parents) override {
    const at::Tensor rows = at::tensor(at::IntArrayRef(parents.data(), parents.size()), at::kLong);
    state_ = select_batch(state_, rows.to(device_of(model_)));
  }

 private:
  const core::Model& model_;
  const core::ReadsSource& reader_;
  bool begins_ = false;
  core::State state_;
};

class StoppableDecoder final : public StepDecoder {
 public:
  StoppableDecoder(std::unique_ptr<StepDecoder> decoder, base::ShouldStop should_stop)
      : decoder_(std::move(decoder)), should_stop_(std::move(should_stop)) {}
  int64_t vocabulary() const override { return decoder_->vocabulary(); }
  std::optional<int64_t> max_tokens() const override { return decoder_->max_tokens(); }
  void start(const at::Tensor& source, const at::Tensor& valid) override { decoder_->start(source, valid); }
  void start(const core::State& read) override { decoder_->start(read); }
  at::Tensor log_probabilities(std::span<const int64_t> last) override {
    base::stop_if_asked(should_stop_, "search");
    return decoder_->log_probabilities(last);
  }
  void select(std::span<const int64_t> parents) override { decoder_->select(parents); }

 private:
  std::unique_ptr<StepDecoder> decoder_;
  base::ShouldStop should_stop_;
};

}  // namespace

std::unique_ptr<StepDecoder> make_model_decoder(const core::Model& model) {
  return std::make_unique<ModelDecoder>(model);
}

std::unique_ptr<StepDecoder> stoppable(std::unique_ptr<StepDecoder> decoder, base::ShouldStop should_stop) {
  if (!should_stop) return decoder;
  return std::make_unique<StoppableDecoder>(std::move(decoder), std::move(should_stop));
}

}  // namespace mnemo::search
