#include "search/generation_search.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "search/allowed_tokens.h"

namespace mnemo::search {
namespace {

struct Generated {
  std::vector<Hypothesis> running = std::vector<Hypothesis>(1), finished;  // both best first
};

class GenerationSearch {
 public:
  GenerationSearch(int64_t first, int64_t eos, int64_t vocabulary, const GenerationOptions& options)
      : first_(first),
        eos_(eos),
        vocabulary_(vocabulary),
        options_(options),
        beams_(static_cast<size_t>(options.num_beams)) {}

  /// Changes the log probabilities [V] of the n-th token of a hypothesis as the options say.
  void change(at::Tensor& row, const std::vector<int64_t>& tokens, int64_t n) const {
    double* values = row.mutable_data_ptr<double>();
    const double end = values[eos_];
    for (const int64_t token : options_.suppressed) values[token] = kNever;
    if (options_.no_repeat_ngram > 0) {
      std::vector<int64_t> all = {first_};
      all.insert(all.end(), tokens.begin(), tokens.end());
      forbid_repeats(all, options_.no_repeat_ngram, values);
    }
    if (n <= options_.min_new_tokens) values[eos_] = kNever;
    if (options_.forced_eos && n == options_.max_new_tokens) {
      row.fill_(kNever);
      values[*options_.forced_eos] = 0.0;
    }
    end_if_stuck(values, vocabulary_, eos_, end);
    if (options_.renormalize) row = at::log_softmax(row, -1);
  }

  /// Continues the hypotheses of a sequence by rows [R,V]. parents: the index of each running one's parent among them.
  void advance(Generated& all, const std::vector<at::Tensor>& rows, int64_t n, std::vector<int64_t>& parents) const {
    struct Candidate {
      double sum;
      int64_t beam, token;
    };
    std::vector<Candidate> candidates;
    for (size_t beam = 0; beam < rows.size(); ++beam) {
      const at::Tensor sums = rows[beam] + all.running[beam].sum;
      const auto [values, tokens] = sums.topk(std::min<int64_t>(2 * options_.num_beams, vocabulary_));
      for (int64_t i = 0; i < values.size(0); ++i)
        candidates.push_back({values[i].item<double>(), static_cast<int64_t>(beam), tokens[i].item<int64_t>()});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
    candidates.resize(std::min(candidates.size(), beams_ == 1 ? size_t{1} : 2 * beams_));
    std::vector<Hypothesis> next;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (candidate.sum == kNever) break;
      const bool ends = candidate.token == eos_ || n == options_.max_new_tokens;
      if (ends ? i >= beams_ : next.size() == beams_) continue;
      Hypothesis longer = all.running[static_cast<size_t>(candidate.beam)];
      longer.tokens.push_back(candidate.token);
      longer.sum = candidate.sum;
      if (ends) {
        longer.score = scored(longer.sum, n);
        all.finished.push_back(std::move(longer));
      } else {
        next.push_back(std::move(longer));
        parents.push_back(candidate.beam);
      }
    }
    std::stable_sort(all.finished.begin(), all.finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    all.finished.resize(std::min(all.finished.size(), beams_));
    all.running = std::move(next);
  }

  bool is_done(const Generated& all, int64_t n) const {
    if (all.running.empty() || n == options_.max_new_tokens) return true;
    if (all.finished.size() < beams_) return false;
    using Early = GenerationOptions::EarlyStopping;
    if (options_.early_stopping == Early::yes) return true;
    const bool longest = options_.early_stopping == Early::never && options_.length_penalty > 0.0;
    return scored(all.running.front().sum, longest ? options_.max_new_tokens : n) <= all.finished.back().score;
  }

 private:
  double scored(double sum, int64_t n) const { return sum / std::pow(static_cast<double>(n), options_.length_penalty); }

  int64_t first_, eos_, vocabulary_;
  const GenerationOptions& options_;
  size_t beams_;
};

}  // namespace

void require_fitting(const GenerationOptions& options, int64_t vocabulary) {
  base::check_options(options);
  base::require(options.num_beams <= vocabulary,
                "generation: num_beams: expected at most the vocabulary's {}, found {}", vocabulary, options.num_beams);
  std::vector<int64_t> tokens = options.suppressed;
  if (options.forced_eos) tokens.push_back(*options.forced_eos);
  for (const int64_t token : tokens)
    base::require(token < vocabulary, "generation: expected tokens below {}, found {}", vocabulary, token);
}

std::vector<std::vector<Hypothesis>> generation_search(StepDecoder& decoder, int64_t first, int64_t eos,
                                                       const at::Tensor& source, const at::Tensor& valid,
                                                       const GenerationOptions& wanted) {
  const c10::InferenceMode inference;
  require_fitting(wanted, decoder.vocabulary());
  GenerationOptions options = wanted;
  options.max_new_tokens = std::min(options.max_new_tokens, decoder.max_tokens().value_or(options.max_new_tokens));
  const GenerationSearch search(first, eos, decoder.vocabulary(), options);
  std::vector<Generated> all(static_cast<size_t>(source.size(0)));
  std::vector<size_t> active(all.size());
  for (size_t i = 0; i < active.size(); ++i) active[i] = i;
  decoder.start(source, valid);
  for (int64_t n = 1; !active.empty(); ++n) {
    std::vector<int64_t> last, parents;
    for (const size_t i : active) {
      for (const Hypothesis& beam : all[i].running) last.push_back(beam.tokens.empty() ? first : beam.tokens.back());
    }
    const at::Tensor rows = decoder.log_probabilities(last).to(at::kDouble);
    if (rows.isnan().any().item<bool>())
      throw base::NotFinite("generation: the probabilities of the model are not finite");
    std::vector<size_t> still;
    int64_t row = 0;
    for (const size_t i : active) {
      std::vector<at::Tensor> own;
      std::vector<int64_t> from;
      const int64_t begin = row;
      for (size_t beam = 0; beam < all[i].running.size(); ++beam) {
        own.push_back(rows[row++].clone());
        search.change(own.back(), all[i].running[beam].tokens, n);
      }
      search.advance(all[i], own, n, from);
      if (search.is_done(all[i], n)) continue;
      still.push_back(i);
      for (const int64_t beam : from) parents.push_back(begin + beam);
    }
    active = std::move(still);
    if (!active.empty()) decoder.select(parents);
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Generated& sequence : all) results.push_back(std::move(sequence.finished));
  return results;
}

}  // namespace mnemo::search
