#include "text/sentencepiece_status.h"

#include <cstdio>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::text {

void require_ok(const sentencepiece::util::Status& status, const std::string& where) {
  if (status.ok()) return;
  // "Internal: ./src/trainer_interface.cc(660) [(a) == (b)] Vocabulary size too high ..."
  std::string words = status.ToString();
  if (const size_t code = words.find(": "); code != std::string::npos) words.erase(0, code + 2);
  if (const size_t place = words.rfind("] "); place != std::string::npos) words.erase(0, place + 2);
  int found = 0, limit = 0;
  if (std::sscanf(words.c_str(), "Vocabulary size too high (%d). Please set it to a value <= %d", &found, &limit) == 2)
    base::input_error("{}: vocabulary size: expected at most {}, all the pieces that this text has, found {}", where,
                      limit, found);
  if (std::sscanf(words.c_str(), "Vocabulary size is smaller than required_chars. %d vs %d", &found, &limit) == 2)
    base::input_error(
        "{}: vocabulary size: expected at least {}, a piece for each character and special token, "
        "found {}",
        where, limit, found);
  base::input_error("{}: SentencePiece cannot use it{}{}", where, words.empty() ? "" : ": ",
                    base::printable(words, 400));
}

}  // namespace mnemo::text
