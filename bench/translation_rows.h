#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::bench {

/// One setting of the search that translations are measured with.
struct TranslationWork {
  ops::Precision precision;
  int64_t batch, beam;
  bool last;  ///< of its precision
  std::string name() const;
  std::string key() const;      ///< in the file of bars
  std::string request() const;  ///< of CTranslate2, whose int8 rounds weights and inputs to 8 bits, as w8a8 does
};
/// float32, int8 and w8a8, batch 1 and 32, beam 1 and 5.
std::vector<TranslationWork> translation_works();

struct TranslationRow {
  std::string what, key;  ///< key: in the file of bars
  Rounds seconds;
  std::vector<std::pair<std::string, Rounds>> times;  ///< by peer: how many times as fast ours is
  std::optional<double> bleu = {}, peers_bleu = {};   ///< of a trained model; CTranslate2's
  int64_t equal = 0;                                  ///< sentences that both translate alike
};

/// Runs ours and the peers in turn. `ours` runs the work once; a peer returns the seconds that it took.
TranslationRow measure_row(std::string what, std::string key, int64_t repeats, const std::function<void()>& ours,
                           const std::vector<std::pair<std::string, std::function<double()>>>& peers);

BenchReport report_of(const std::vector<TranslationRow>& rows, const std::string& note, Bars& bars);

/// `mnemo-bench translation --model FOLDER --pairs FILE`: a trained model and CTranslate2 with the same weights.
BenchReport bench_trained_translation(const BenchArguments& arguments, Bars& bars);

}  // namespace mnemo::bench
