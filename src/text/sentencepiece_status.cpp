#include "text/sentencepiece_status.h"

#include <cstdio>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::text {

namespace {

/// "Internal: ./src/trainer_interface.cc(660) [(a) == (b)] Vocabulary size too high ..." from "Vocabulary" on.
std::string words_of(const sentencepiece::util::Status& status) {
  std::string words = status.ToString();
  if (const size_t code = words.find(": "); code != std::string::npos) words.erase(0, code + 2);
  if (const size_t place = words.rfind("] "); place != std::string::npos) words.erase(0, place + 2);
  return words;
}

}  // namespace

std::optional<int64_t> most_pieces(const sentencepiece::util::Status& status) {
  int found = 0, limit = 0;
  const bool too_many = !status.ok() && std::sscanf(words_of(status).c_str(),
                                                    "Vocabulary size too high (%d). Please set it to a value <= %d",
                                                    &found, &limit) == 2;
  return too_many ? std::optional<int64_t>(limit) : std::nullopt;
}

void require_ok(const sentencepiece::util::Status& status, const std::string& where) {
  if (status.ok()) return;
  const std::string words = words_of(status);
  int found = 0, limit = 0;
  if (std::sscanf(words.c_str(), "Vocabulary size is smaller than required_chars. %d vs %d", &found, &limit) == 2)
    base::input_error(
        "{}: vocabulary size (data.max_vocabulary, --vocab-size): expected at least {}, a piece for each character and "
        "special token, found {}",
        where, limit, found);
  base::input_error("{}: SentencePiece cannot use it{}{}", where, words.empty() ? "" : ": ",
                    base::printable(words, 400));
}

}  // namespace mnemo::text
