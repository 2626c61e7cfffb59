#include "search/beam_search.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"
#include "search/allowed_tokens.h"
#include "search/best_candidates.h"

namespace mnemo::search {
namespace {

/// One sentence of the batch: its running beams, best first, and its finished hypotheses.
struct Search {
  int64_t limit = 0;  ///< tokens before the end
  std::vector<Hypothesis> beams, finished;
  std::vector<int64_t> samples;  ///< which sample each beam is; empty in a beam search
  std::vector<int64_t> prefix;
};

class BeamSearch {
 public:
  /// pick: null in a beam search.
  BeamSearch(StepDecoder& decoder, const models::SpecialTokens& special, const BeamSearchOptions& options,
             const PickToken* pick = nullptr)
      : decoder_(decoder),
        special_(special),
        options_(options),
        pick_(pick),
        width_(options.beam_size),
        vocabulary_(decoder.vocabulary()) {}

  std::vector<std::vector<Hypothesis>> run(const at::Tensor& source, const at::Tensor& valid,
                                           const std::vector<std::vector<int64_t>>& prefix, const core::State& read);

 private:
  template <class T>
  T allow_only(const Search& search, const Hypothesis& beam, T* row) const;
  template <class T>
  void advance(Search& search, T* rows, int64_t first_row, std::vector<int64_t>& parents);
  template <class T>
  void advance_samples(size_t sentence, const at::Tensor& rows, int64_t first_row, std::vector<int64_t>& parents);
  template <class T>
  void advance_all(const at::Tensor& rows, std::vector<int64_t>& parents);
  Hypothesis finish(const Hypothesis& beam) const;
  double scored(double sum, int64_t tokens) const {
    return sum / std::pow(static_cast<double>(tokens), options_.length_penalty);
  }
  bool is_done(const Search& search) const;

  StepDecoder& decoder_;
  const models::SpecialTokens& special_;
  const BeamSearchOptions& options_;
  const PickToken* pick_;
  const int64_t width_, vocabulary_;
  int64_t length_ = 0;
  std::vector<Search> searches_;
  std::vector<size_t> running_;  ///< sentences that are not finished
  BestCandidates candidates_;
};

/// Sets tokens that a beam must not continue with to -inf. Returns the log probability of its end. Throws NotFinite.
template <class T>
T BeamSearch::allow_only(const Search& search, const Hypothesis& beam, T* row) const {
  if (std::isnan(row[0])) throw base::NotFinite("translation: the probabilities of the model are not finite");
  const T end = row[special_.eos], never = static_cast<T>(kNever);
  if (length_ <= static_cast<int64_t>(search.prefix.size())) {
    const int64_t token = search.prefix[static_cast<size_t>(length_ - 1)];
    const T kept = row[token];
    std::fill_n(row, vocabulary_, never);
    row[token] = kept;
    return end;
  }
  row[special_.pad] = never;
  if (!search.prefix.empty() && length_ == static_cast<int64_t>(search.prefix.size()) + 1) {
    for (const int64_t token : options_.not_after_prefix) row[token] = never;
  }
  if (options_.no_repeat_ngram > 0) forbid_repeats(beam.tokens, options_.no_repeat_ngram, row);
  if (length_ <= options_.min_len) row[special_.eos] = never;
  if (length_ > search.limit) std::fill_n(row, vocabulary_, never);
  end_if_stuck(row, vocabulary_, special_.eos, end);
  return end;
}

Hypothesis BeamSearch::finish(const Hypothesis& beam) const {
  Hypothesis done = beam;
  done.score = scored(done.sum, static_cast<int64_t>(done.tokens.size()));
  return done;
}

/// Whether a sentence's search can end: beam_size hypotheses are finished, or the wanted ones are certain.
bool BeamSearch::is_done(const Search& search) const {
  if (search.beams.empty() || search.finished.size() == static_cast<size_t>(width_)) return true;
  const auto wanted = static_cast<size_t>(options_.wanted);
  if (pick_ != nullptr || wanted == 0 || search.finished.size() < wanted) return false;
  std::vector<double> scores;
  for (const Hypothesis& hypothesis : search.finished) scores.push_back(hypothesis.score);
  std::nth_element(scores.begin(), scores.begin() + options_.wanted - 1, scores.end(), std::greater<>());
  const int64_t longest = std::max(search.limit, static_cast<int64_t>(search.prefix.size())) + 1;
  const double bound = scored(search.beams.front().sum, longest);
  constexpr double kBelow = 1.0 - 1e-12;  // rounding error of std::pow
  return bound * kBelow <= scores[wanted - 1];
}

/// Continues the beams of a sentence, whose log probabilities start at `rows`. parents: appends the row of the batch
/// from which each of its new beams goes on.
template <class T>
void BeamSearch::advance(Search& search, T* rows, int64_t first_row, std::vector<int64_t>& parents) {
  candidates_.start(2 * width_);
  for (int64_t b = 0; b < static_cast<int64_t>(search.beams.size()); ++b) {
    const Hypothesis& beam = search.beams[static_cast<size_t>(b)];
    T* row = rows + b * vocabulary_;
    allow_only(search, beam, row);
    candidates_.take(b, beam.sum, row, vocabulary_);
  }
  const std::vector<Candidate>& candidates = candidates_.in_order();
  std::vector<Hypothesis> next;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    const bool ends = candidate.token == special_.eos && length_ > static_cast<int64_t>(search.prefix.size());
    if (ends && (i >= static_cast<size_t>(width_) || search.finished.size() == static_cast<size_t>(width_))) continue;
    if (!ends && next.size() == static_cast<size_t>(width_)) continue;
    Hypothesis longer = search.beams[static_cast<size_t>(candidate.beam)];
    longer.tokens.push_back(candidate.token);
    longer.sum = candidate.sum;
    if (ends) {
      search.finished.push_back(finish(longer));
    } else {
      next.push_back(std::move(longer));
      parents.push_back(first_row + candidate.beam);
    }
  }
  search.beams = std::move(next);
}

/// Continues the samples of a sentence, whose log probabilities are `rows` [n,V] and come after those of `first_row`
/// other rows; before the first token one row serves all.
template <class T>
void BeamSearch::advance_samples(size_t sentence, const at::Tensor& rows, int64_t first_row,
                                 std::vector<int64_t>& parents) {
  Search& search = searches_[sentence];
  std::vector<T> ends;
  for (size_t i = 0; i < search.beams.size(); ++i)
    ends.push_back(
        allow_only(search, search.beams[i], rows.mutable_data_ptr<T>() + static_cast<int64_t>(i) * vocabulary_));
  if (length_ == 1) {
    search.beams.resize(static_cast<size_t>(width_));
    for (int64_t sample = 0; sample < width_; ++sample) search.samples.push_back(sample);
  }
  std::vector<Hypothesis> next;
  std::vector<int64_t> samples;
  for (size_t i = 0; i < search.beams.size(); ++i) {
    const int64_t row = length_ == 1 ? 0 : static_cast<int64_t>(i);
    const int64_t picked = (*pick_)(rows[row], static_cast<int64_t>(sentence), search.samples[i], length_ - 1);
    const int64_t token = picked < 0 ? special_.eos : picked;
    const double added = picked < 0 ? static_cast<double>(ends[static_cast<size_t>(row)])
                                    : rows[row][token].item<double>();
    Hypothesis longer = std::move(search.beams[i]);
    longer.tokens.push_back(token);
    longer.sum = longer_sum(longer.sum, added);
    if (token == special_.eos && length_ > static_cast<int64_t>(search.prefix.size())) {
      search.finished.push_back(finish(longer));
    } else {
      next.push_back(std::move(longer));
      samples.push_back(search.samples[i]);
      parents.push_back(first_row + row);
    }
  }
  search.beams = std::move(next);
  search.samples = std::move(samples);
}

template <class T>
void BeamSearch::advance_all(const at::Tensor& probabilities, std::vector<int64_t>& parents) {
  T* rows = probabilities.mutable_data_ptr<T>();
  std::vector<size_t> still;
  int64_t row = 0;
  for (const size_t sentence : running_) {
    Search& search = searches_[sentence];
    const auto count = static_cast<int64_t>(search.beams.size());
    const size_t before = parents.size();
    if (pick_ != nullptr) {
      advance_samples<T>(sentence, probabilities.narrow(0, row, count), row, parents);
    } else {
      advance(search, rows + row * vocabulary_, row, parents);
    }
    row += count;
    if (is_done(search)) {
      parents.resize(before);
    } else {
      still.push_back(sentence);
    }
  }
  running_ = std::move(still);
}

std::vector<std::vector<Hypothesis>> BeamSearch::run(const at::Tensor& source, const at::Tensor& valid,
                                                     const std::vector<std::vector<int64_t>>& prefix,
                                                     const core::State& read) {
  const c10::InferenceMode inference;
  const int64_t batch = source.size(0);
  const at::Tensor counts = valid.defined() ? valid.sum(1).to(at::kCPU) : at::Tensor();
  searches_.resize(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    Search& search = searches_[static_cast<size_t>(b)];
    const int64_t tokens = valid.defined() ? counts[b].item<int64_t>() : source.size(1);
    search.limit = static_cast<int64_t>(std::floor(options_.max_len_a * static_cast<double>(tokens))) +
                   options_.max_len_b;
    if (!prefix.empty()) search.prefix = prefix[static_cast<size_t>(b)];
    if (const std::optional<int64_t> places = decoder_.max_tokens()) {
      search.limit = std::min(search.limit, *places - 1);
      base::require(static_cast<int64_t>(search.prefix.size()) < *places,
                    "translation: expected a prefix of fewer than {} tokens, the model's positions, found {}", *places,
                    search.prefix.size());
    }
    search.beams.resize(1);
    running_.push_back(static_cast<size_t>(b));
  }
  if (read.empty()) {
    decoder_.start(source, valid);
  } else {
    decoder_.start(read);
  }
  for (length_ = 1; !running_.empty(); ++length_) {
    std::vector<int64_t> last, parents;
    for (const size_t sentence : running_) {
      for (const Hypothesis& beam : searches_[sentence].beams)
        last.push_back(beam.tokens.empty() ? special_.first() : beam.tokens.back());
    }
    const at::Tensor rows = decoder_.log_probabilities(last);
    if (rows.scalar_type() == at::kDouble) {
      advance_all<double>(rows, parents);
    } else {
      advance_all<float>(rows, parents);
    }
    if (!running_.empty()) decoder_.select(parents);
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Search& search : searches_) {
    std::stable_sort(search.finished.begin(), search.finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    if (search.finished.empty())
      throw base::NotFinite(
          "translation: the model gives no token a probability above 0 where a hypothesis has to end");
    if (options_.wanted > 0 && search.finished.size() > static_cast<size_t>(options_.wanted))
      search.finished.resize(static_cast<size_t>(options_.wanted));
    results.push_back(std::move(search.finished));
  }
  return results;
}

void require_prefixes(const at::Tensor& source, const std::vector<std::vector<int64_t>>& prefix) {
  base::require(prefix.empty() || static_cast<int64_t>(prefix.size()) == source.size(0),
                "translation: expected one prefix per sentence, {}, found {}", source.size(0), prefix.size());
}

}  // namespace

void require_fitting(const BeamSearchOptions& options, int64_t vocabulary) {
  base::check_options(options);
  base::require(options.beam_size <= vocabulary,
                "translation: beam_size: expected at most the vocabulary's {}, found {}", vocabulary,
                options.beam_size);
  base::require(options.wanted >= 0 && options.wanted <= options.beam_size,
                "translation: expected 0 to beam_size = {} wanted hypotheses, found {}", options.beam_size,
                options.wanted);
}

std::vector<std::vector<Hypothesis>> beam_search(StepDecoder& decoder, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix,
                                                 const core::State& read) {
  require_fitting(options, decoder.vocabulary());
  require_prefixes(source, prefix);
  return BeamSearch(decoder, special, options).run(source, valid, prefix, read);
}

std::vector<std::vector<Hypothesis>> sample_search(StepDecoder& decoder, const models::SpecialTokens& special,
                                                   const at::Tensor& source, const at::Tensor& valid,
                                                   const BeamSearchOptions& options, const PickToken& pick,
                                                   const std::vector<std::vector<int64_t>>& prefix,
                                                   const core::State& read) {
  require_prefixes(source, prefix);
  return BeamSearch(decoder, special, options, &pick).run(source, valid, prefix, read);
}

std::vector<std::vector<Hypothesis>> beam_search(const core::Model& model, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix) {
  return beam_search(*make_model_decoder(model), special, source, valid, options, prefix);
}

}  // namespace mnemo::search
