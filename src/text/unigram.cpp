#include "text/unigram.h"

#include <algorithm>
#include <cfloat>

#include "base/error.h"

namespace mnemo::text {
namespace {

constexpr float kUnknownPenalty = 10.0f;

std::vector<PieceTrie::Entry> entries(const SentencePieceModel& model) {
  std::vector<PieceTrie::Entry> out;
  for (int64_t id = 0; id < model.pieces.size(); ++id) {
    const PieceType type = model.types[static_cast<size_t>(id)];
    if (type == PieceType::user_defined || type == PieceType::normal)
      out.push_back({model.pieces[id], static_cast<int32_t>(id)});
  }
  return out;
}

}  // namespace

UnigramEncoder::UnigramEncoder(const SentencePieceModel& model, const std::string& where)
    : PieceEncoder(model, where), pieces_(entries(model)) {
  float lowest = FLT_MAX, highest = FLT_MIN;
  for (size_t id = 0; id < model.types.size(); ++id) {
    if (model.types[id] != PieceType::normal) continue;
    lowest = std::min(lowest, model.scores[id]);
    highest = std::max(highest, model.scores[id]);
  }
  unknown_score_ = lowest - kUnknownPenalty;
  for (size_t id = 0; id < model.types.size(); ++id) {
    // A symbol of the user's is always chosen.
    const auto size = static_cast<float>(model.pieces[static_cast<int64_t>(id)].size());
    scores_.push_back(model.types[id] == PieceType::user_defined ? static_cast<float>(size * highest - 0.1)
                                                                 : model.scores[id]);
  }
}

std::vector<UnigramEncoder::Piece> UnigramEncoder::segment(std::string_view text) const {
  struct End {
    float score = 0;  // of the best path that ends here; the sums are of floats, as SentencePiece makes them
    int32_t id = -1;
    uint32_t begin = UINT32_MAX;
  };
  std::vector<End> ends(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const float before = ends[at].score;
    const size_t single = character_length(text.substr(at));
    bool has_single = false;
    const auto offer = [&](size_t length, int32_t id, float score) {
      End& end = ends[at + length];
      // Both sides as floats: of equally good paths the one with the longest last piece stays.
      const float sum = score + before;
      if (end.begin == UINT32_MAX || sum > end.score) end = {sum, id, static_cast<uint32_t>(at)};
    };
    pieces_.for_each_prefix(text.substr(at), [&](size_t length, int32_t id) {
      offer(length, id, scores_[static_cast<size_t>(id)]);
      has_single = has_single || length == single;
    });
    if (!has_single) offer(single, unknown_, unknown_score_);
    at += single;
  }
  std::vector<Piece> out;
  for (size_t end = text.size(); end > 0; end = ends[end].begin) {
    base::ensure(ends[end].begin < end, "unigram: no path to byte {} of {}", end, text.size());
    out.push_back({static_cast<uint32_t>(end), ends[end].id});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace mnemo::text
