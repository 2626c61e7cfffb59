#include "infer/engine_sequence.h"

namespace mnemo::infer {

int64_t EngineSequence::num_bytes() const {
  int64_t bytes = 0;
  for (const auto* states : {&layers_, &contexts_, &memories_}) {
    for (const Kept& state : *states) bytes += (*state).num_bytes();
  }
  for (const auto& keys : encoded_) bytes += keys->k.size + keys->v.size;
  return bytes;
}

}  // namespace mnemo::infer
