#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <utility>
#include <vector>

namespace mnemo::layers {

/// The states of what this thread draws random numbers from, on the CPU and on `device` (ops::generator_now).
class RandomState {
 public:
  explicit RandomState(at::Device device);
  /// Sets the generators to this state.
  void restore() const;
  /// Shares the tensors of `other` if they are equal: most models draw no random numbers, and a state takes 5 KB.
  void share(const RandomState& other);

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

/// Repeats the random numbers from `begin` during its lifetime, then restores the generators.
class RandomReplay {
 public:
  RandomReplay(const RandomState& begin, at::Device device) : now_(device) { begin.restore(); }
  ~RandomReplay() { now_.restore(); }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState now_;
};

/// run(inputs), without its graph: the backward pass runs it again, with the same random numbers (gradient
/// checkpointing, Chen et al. 2016). Values, gradients and subsequent random numbers are those of run(inputs), bit for
/// bit; between the passes only the inputs stay in memory.
///   run         depends on its inputs, on `parameters`, and on constants that it holds; called in every backward pass
///   inputs      defined tensors, any type
///   parameters  every trainable tensor that `run` may use
/// First derivatives only.
std::vector<at::Tensor> recomputed(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>& run,
    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& parameters);

}  // namespace mnemo::layers
