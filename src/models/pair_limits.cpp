#include "models/pair_limits.h"

#include <algorithm>
#include <limits>

#include "models/make_attention.h"
#include "models/registry.h"

namespace mnemo::models {
namespace {

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

int64_t places_of(const backbones::PositionOptions& position) {
  return position.type == backbones::PositionOptions::Type::learned ? position.places() : kAny;
}

int64_t rows_of(const base::TypedOptions& attention) {
  const auto limit = row_limit(attention);
  return limit ? limit->rows : kAny;
}

std::optional<int64_t> if_any(int64_t limit) { return limit == kAny ? std::nullopt : std::optional(limit); }

/// The longest source. Each segment of it has the rows of the encoder's memories beside its tokens, in the encoder's
/// attention and positions and for the decoder.
std::optional<int64_t> longest_source(const EncoderDecoderOptions& backbone) {
  int64_t beside = 0;
  for (const base::TypedOptions& memory : backbone.encoder.memory)
    beside += Mechanisms::all().memories.find(memory.type()).rows_beside(memory);
  const auto without = [&](int64_t rows) { return rows == kAny ? kAny : rows - beside; };
  int64_t longest = without(places_of(backbone.encoder_stack().position));
  const int64_t size = backbone.encoder.segment_size.value_or(kAny);
  const int64_t of_segment = without(rows_of(backbone.encoder.attention));
  if (of_segment < size) longest = std::min(longest, of_segment);
  if (const int64_t rows = rows_of(backbone.decoder.cross_attention); rows != kAny) {
    int64_t left = rows, read = 0;
    for (; left > beside && read < rows; left -= beside) {
      const int64_t segment = std::min(size, left - beside);
      read += segment;
      left -= segment;
    }
    longest = std::min(longest, read);
  }
  return if_any(longest);
}

}  // namespace

core::PairInput pair_input_of(const ModelOptions& options) {
  const EmbeddingOptions& embedding = options.embedding;
  const EncoderDecoderOptions& backbone = options.backbone.pairs();
  return {embedding.source_vocab_size.value_or(embedding.vocab_size), embedding.vocab_size, longest_source(backbone),
          if_any(std::min(places_of(backbone.decoder_stack().position), rows_of(backbone.decoder.attention)))};
}

}  // namespace mnemo::models
