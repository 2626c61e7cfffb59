#include "infer/engine_sequence.h"

namespace mnemo::infer {

int64_t EngineSequence::num_bytes() const {
  int64_t bytes = 0;
  for (const auto* states : {&layers_, &contexts_, &memories_}) {
    for (const Kept& state : *states) bytes += (*state).num_bytes();
  }
  for (const auto& source : encoded_) bytes += source->num_bytes();
  return bytes;
}

}  // namespace mnemo::infer
