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
  explicit ModelDecoder(const core::Model& model) : model_(model) {}
  int64_t vocabulary() const override { return core::pair_input(model_.input()).target_vocab_size; }
  std::optional<int64_t> max_tokens() const override { return core::pair_input(model_.input()).max_target; }
  void start(const at::Tensor& source, const at::Tensor& valid) override {
    start(model_.read_source(source, valid, core::Mode::evaluate, model_.initial_state(source.size(0))));
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
  bool begins_ = false;
  core::State state_;
};

}  // namespace

std::unique_ptr<StepDecoder> make_model_decoder(const core::Model& model) {
  return std::make_unique<ModelDecoder>(model);
}

}  // namespace mnemo::search
