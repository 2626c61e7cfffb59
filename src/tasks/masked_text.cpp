#include "tasks/masked_text.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/random.h"

namespace mnemo::tasks {
MaskedText::MaskedText(data::Corpus corpus, const MaskedTextTaskOptions& options)
    : PieceTask(std::move(corpus), options), masked_(options) {
  if (options.special_tokens) {
    constexpr int32_t kText = -1;
    const std::vector<int32_t> text = {kText};
    const std::vector<int32_t> ids = corpus_.tokenizer->with_special_tokens(text).ids;
    const auto place = std::find(ids.begin(), ids.end(), kText);
    before_.assign(ids.begin(), place);
    after_.assign(place + 1, ids.end());
  }
  const auto beside = static_cast<int64_t>(before_.size() + after_.size());
  room_ = options.segment_size - beside;
  base::require(room_ > 0, "data.max_length: expected more than the {} special tokens of a text, found {}", beside,
                options.segment_size);
  begin("the text is empty");
}

std::vector<data::Batch> MaskedText::segments_of(const data::TokenStore& text, const Pieces& pieces,
                                                 const SampleBatches::Batch& chosen) const {
  const std::vector<int64_t>& numbers = chosen.samples;
  const auto batch = static_cast<int64_t>(numbers.size()),
             beside = static_cast<int64_t>(before_.size() + after_.size());
  int64_t longest = 0;
  for (const int64_t number : numbers) {
    const data::TextPiece& piece = pieces[static_cast<size_t>(number)];
    longest = std::max(longest, piece.end - piece.begin);
  }
  const int64_t size = std::min(longest, room_) + beside;
  std::vector<data::Batch> segments;
  for (int64_t s = 0; s * room_ < longest; ++s) {
    data::Batch segment;
    segment.input.tokens = at::zeros({batch, size}, at::kLong);
    segment.input.valid = at::zeros({batch, size}, at::kBool);
    segment.targets = data::TokenTargets{at::full({batch, size}, base::kIgnoreTarget, at::kLong)};
    segments.push_back(std::move(segment));
  }
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t number = numbers[static_cast<size_t>(b)];
    const data::TextPiece& piece = pieces[static_cast<size_t>(number)];
    base::Random random{static_cast<uint64_t>(options_.seed),
                        static_cast<uint64_t>(chosen.epochs[static_cast<size_t>(b)]), static_cast<uint64_t>(number)};
    for (size_t s = 0; s < segments.size(); ++s) {
      const int64_t begin = piece.begin + static_cast<int64_t>(s) * room_, count = std::min(room_, piece.end - begin);
      if (count <= 0) break;
      data::Batch& segment = segments[s];
      int64_t* const tokens = segment.input.tokens.mutable_data_ptr<int64_t>() + b * size;
      int64_t* const own = std::copy(before_.begin(), before_.end(), tokens);
      const auto first = static_cast<size_t>(own - tokens), length = static_cast<size_t>(count);
      text.read(begin, {own, length});
      int64_t* const targets = data::token_targets(segment).mutable_data_ptr<int64_t>() + b * size + first;
      data::mask_tokens({own, length}, {targets, length}, masked_.masking, random);
      std::copy(after_.begin(), after_.end(), own + count);
      std::fill_n(segment.input.valid.mutable_data_ptr<bool>() + b * size, count + beside, true);
      segment.num_targets += count - std::count(targets, targets + count, base::kIgnoreTarget);
    }
  }
  for (data::Batch& segment : segments) {
    if (segment.input.valid.all().item<bool>()) segment.input.valid.reset();
  }
  return segments;
}

void MaskedText::count(const core::Model& model, const at::Tensor& hidden, const data::Batch& segment,
                       TokenCounts& counts) const {
  const at::Tensor all = data::token_targets(segment).flatten(),
                   hidden_tokens = all.ne(base::kIgnoreTarget).nonzero().squeeze(1);
  counts.add(model, hidden.flatten(0, 1).index_select(0, hidden_tokens), all.index_select(0, hidden_tokens));
}

}  // namespace mnemo::tasks
