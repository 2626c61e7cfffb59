#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/text/corpus.h"

namespace mnemo::data {

/// The description of one part of a text, printed by `mnemo data`.
struct PartDescription {
  std::string name;  ///< "train", "valid" or "test"
  std::string path;
  int64_t begin = 0, end = 0;  ///< bytes of the file
  int64_t characters = 0;
  int64_t tokens = 0;
  int64_t unknown = 0;  ///< tokens that are <unk>
  int64_t documents = 0;
  int64_t predictions = 0;  ///< targets in one pass: tokens minus one per document
  int64_t memory = 0;       ///< bytes held in memory
};

struct TextDescription {
  std::string unit;
  int64_t vocabulary_size = 0;
  std::vector<PartDescription> parts;
};

/// Reads and encodes the text like training would, and counts.
TextDescription describe(const TextOptions& options);
/// Same for a loaded corpus; the parts' paths and byte ranges come from `options`.
TextDescription describe(const TextOptions& options, const Corpus& corpus);

/// An aligned table for the terminal.
std::string to_text(const TextDescription& description);
/// For --json.
base::Node to_node(const TextDescription& description);

}  // namespace mnemo::data
