#include "text/sentencepiece_bpe.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "base/node.h"
#include "text/merge_order.h"

namespace mnemo::text {
namespace {

bool is_of_texts(PieceType type) {
  return type == PieceType::normal || type == PieceType::user_defined || type == PieceType::unused;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceModel& model, const std::string& where)
    : PieceEncoder(model, where), index_(model.pieces), ranks_(model.scores.size()) {
  if (const int64_t twice = index_.duplicate(); twice >= 0)
    base::input_error("{}: the piece {} appears twice", where, base::in_quotes(model.pieces[twice]));
  for (int64_t id = 0; id < model.pieces.size(); ++id) longest_ = std::max(longest_, model.pieces[id].size());
  std::vector<uint32_t> order(model.scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return model.scores[a] > model.scores[b]; });
  for (size_t i = 1; i < order.size(); ++i)
    ranks_[order[i]] = ranks_[order[i - 1]] + (model.scores[order[i]] < model.scores[order[i - 1]] ? 1 : 0);
}

int64_t SentencePieceBpe::find(std::string_view text) const {
  if (text.size() > longest_) return -1;
  const int64_t id = index_.find(text);
  return id >= 0 && is_of_texts(model_.types[static_cast<size_t>(id)]) ? id : -1;
}

std::vector<SentencePieceBpe::Piece> SentencePieceBpe::segment(std::string_view text) const {
  std::vector<uint32_t> begins;  // of the symbols, and the end
  std::vector<bool> fixed;       // the user's symbols are joined to nothing
  for (size_t at = 0; at < text.size();) {
    const size_t length = user_defined_length(text.substr(at));
    begins.push_back(static_cast<uint32_t>(at));
    fixed.push_back(length > 0);
    at += length > 0 ? length : character_length(text.substr(at));
  }
  begins.push_back(static_cast<uint32_t>(text.size()));
  const auto between = [&](uint32_t left, uint32_t right) {
    return text.substr(begins[left], begins[right] - begins[left]);
  };
  // The left part of each unused piece when it was last found.
  std::unordered_map<int64_t, size_t> left_parts;
  const auto rank = [&](uint32_t left, uint32_t right, uint32_t end) {
    if (fixed[left] || fixed[right]) return kNoMerge;
    const int64_t id = find(between(left, end));
    if (id < 0) return kNoMerge;
    if (model_.types[static_cast<size_t>(id)] == PieceType::unused) left_parts[id] = between(left, right).size();
    return ranks_[static_cast<size_t>(id)];
  };
  const auto count = static_cast<uint32_t>(fixed.size());
  const std::vector<uint32_t> next = join_neighbours(count, rank, [](uint32_t, uint32_t) {});

  std::vector<Piece> out;
  std::vector<std::string_view> rest;  // of one symbol, the leftmost part last
  for (uint32_t at = 0; at < count; at = next[at]) {
    rest.push_back(between(at, next[at]));
    for (uint32_t done = begins[at]; !rest.empty();) {
      const std::string_view part = rest.back();
      rest.pop_back();
      const int64_t id = find(part);
      const auto unused = left_parts.find(id);
      if (unused != left_parts.end() && unused->second < part.size()) {
        rest.push_back(part.substr(unused->second));
        rest.push_back(part.substr(0, unused->second));
        continue;
      }
      done += static_cast<uint32_t>(part.size());
      out.push_back({done, id < 0 ? unknown_ : static_cast<int32_t>(id)});
    }
  }
  return out;
}

}  // namespace mnemo::text
