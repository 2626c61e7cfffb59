#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/input.h"

namespace mnemo::core {

/// Where a memory attaches to a model.
enum class Seam { attention, layer_context, sequence, tasks };

/// The facts a mechanism may know about its future model before anything is built: the model's options, without the
/// names of other mechanisms.
struct ModelOutline {
  bool whole = true;  ///< with an input and a head; false: a layer_stack, which maps rows to rows
  InputKind input = InputKind::tokens;
  bool causal = true;
  std::string backbone;      ///< its type, for messages
  bool takes_tasks = false;  ///< the backbone can run tasks with their own class tokens
  bool adapters = false;
  int64_t num_layers = 0;
  int64_t dim = 0;
  int64_t segment_size = 0;  ///< tokens
  int64_t vocab_size = 0;
  std::optional<int64_t> position_rows = {};  ///< rows of a learned position table; unset: no limit

  /// The embedding of tokens.
  struct Embedding {
    bool adaptive = false;
    int64_t width = 0;  ///< width of its widest embeddings
    std::vector<int64_t> cutoffs = {};
    int64_t div_val = 1;
  };
  Embedding embedding = {};

  /// One memory of the list, in the order given.
  struct Memory {
    std::string type;
    Seam seam;
    std::vector<int64_t> layers;  ///< the layers that it serves
    int64_t rows_beside = 0;      ///< rows that it adds to a segment's tokens
  };
  std::vector<Memory> memories = {};

  /// The type of the first memory on that seam; empty if there is none.
  std::string on(Seam seam) const {
    for (const Memory& memory : memories) {
      if (memory.seam == seam) return memory.type;
    }
    return {};
  }
};

}  // namespace mnemo::core
