#include <torch/types.h>

#include <cstddef>
#include <cstdint>

#include "../unit/infer/fake_model.h"
#include "core/state.h"
#include "mutated.h"
#include "options_check.h"
#include "weights/safetensors.h"

/// The state of a checkpoint with changes: one of two sequences, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const test::FakeModel model(11, 4);
  static const core::State empty = model.initial_state(2);
  static const std::string saved = weights::encode_safetensors(core::save(empty));
  fuzz::only_input_errors([&] {
    const weights::TensorFile file = weights::read_safetensors(fuzz::mutated(saved, data, size), "input");
    const core::State state = core::load(empty, [&](const std::string& name) {
      const at::Tensor* found = file.find(name);
      return found == nullptr ? at::Tensor() : *found;
    });
    fuzz::demand(core::save(state).size() <= file.tensors.size(), "tensors of a state");
    core::select_batch(state, at::zeros({1}, at::kLong));
  });
  return 0;
}
