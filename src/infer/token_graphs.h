#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "infer/progress.h"

namespace mnemo::infer {

/// Runs the tokens of one sequence on a device as recorded graphs, since launching the few hundred kernels of a token
/// takes longer than running them.
///
/// Within a segment some tensors of the state gain a row with each token. Here these rows are padded on the left, as in
/// a batch of sequences of different lengths, up to the next of a few lengths: until it is reached all shapes stay, and
/// so does the recording. The first and the last token of a segment, and whatever cannot be recorded, run as usual.
class TokenGraphs {
 public:
  using Work = std::function<void()>;
  /// Runs the work once and records it; returns what runs it again (ops/cuda.h). Throws if it cannot.
  using Record = std::function<Work(const Work& work)>;

  /// first_stretch: the tokens of a segment that the first recording serves; the next ones serve twice as many each, to
  /// 512.
  TokenGraphs(std::shared_ptr<const core::Model> model, Record record, int64_t first_stretch = 64);
  ~TokenGraphs();
  TokenGraphs(const TokenGraphs&) = delete;
  TokenGraphs& operator=(const TokenGraphs&) = delete;

  /// infer::run_pending() of a progress that has a pending token: the same logits and state up to rounding. Call it in
  /// inference mode.
  void run_pending(Progress& progress);
  /// Tokens that recordings have run.
  int64_t tokens() const { return tokens_; }

 private:
  struct Step;
  using Fields = std::vector<std::pair<core::Field, at::Tensor>>;

  bool enter(const Progress& progress);
  bool goes_on(const core::State& state) const;
  int64_t end_of_stretch(int64_t used) const;
  std::unique_ptr<Step> recorded_step(const core::State& state, const Fields& fields);
  std::unique_ptr<Step> empty_step(const core::State& state, const Fields& fields) const;
  void load(Step& step, const Fields& fields) const;
  bool advance(Step& step) const;
  void run_recording(Progress& progress);
  core::State state_after(const Step& step) const;

  std::shared_ptr<const core::Model> model_;
  Record record_;
  int64_t first_stretch_;
  bool given_up_ = false;
  std::vector<const void*> weights_;             ///< where the parameters were when the steps were recorded
  std::optional<std::vector<int64_t>> growing_;  ///< the dimension of each field that gains a row; -1: none
  std::map<std::vector<int64_t>, std::unique_ptr<Step>> steps_;  ///< by shapes; null: they do not stay
  Step* running_ = nullptr;                                      ///< holds the state that was handed out last
  std::vector<at::Tensor> handed_out_;                           ///< that state's tensors
  int64_t padding_ = 0;                                          ///< rows of padding in it
  int64_t tokens_ = 0;
};

/// The recordings of a session that writes on a device. A copy of the session makes its own.
class OwnTokenGraphs {
 public:
  OwnTokenGraphs() = default;
  OwnTokenGraphs(const OwnTokenGraphs& other) : wanted_(other.wanted_) {}
  OwnTokenGraphs(OwnTokenGraphs&&) = default;
  OwnTokenGraphs& operator=(const OwnTokenGraphs& other) {
    if (this != &other) graphs_.reset(), wanted_ = other.wanted_;
    return *this;
  }
  OwnTokenGraphs& operator=(OwnTokenGraphs&&) = default;

  void set_wanted(bool wanted) { wanted_ = wanted; }
  /// Null if they are not wanted or the model is not on a CUDA device.
  TokenGraphs* of(const std::shared_ptr<const core::Model>& model);
  int64_t tokens() const { return graphs_ ? graphs_->tokens() : 0; }

 private:
  std::unique_ptr<TokenGraphs> graphs_;
  bool wanted_ = false;
};

}  // namespace mnemo::infer
