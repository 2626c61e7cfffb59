#include "search/beam_search.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace mnemo::search {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// One sentence of the batch: its running beams, best first, and its finished hypotheses.
struct Search {
  int64_t limit = 0;
  std::vector<Hypothesis> beams, finished;
  std::vector<int64_t> prefix;
};

/// Tokens that would complete a sequence of `size` tokens which occurs before.
void forbid_repeats(const std::vector<int64_t>& tokens, int64_t size, double* row) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t head = size - 1;
  for (int64_t at = 0; at + size <= count; ++at) {
    if (std::equal(tokens.begin() + at, tokens.begin() + at + head, tokens.end() - head))
      row[tokens[static_cast<size_t>(at + head)]] = kNever;
  }
}

class BeamSearch {
 public:
  BeamSearch(const core::Model& model, const models::SpecialTokens& special, const BeamSearchOptions& options)
      : model_(model), special_(special), options_(options), width_(options.beam_size) {}

  std::vector<std::vector<Hypothesis>> run(const at::Tensor& source, const at::Tensor& valid,
                                           const std::vector<std::vector<int64_t>>& prefix);

 private:
  /// Log probabilities after the last tokens of all running beams, [rows,V] double.
  at::Tensor log_probabilities(const at::Tensor& source, const at::Tensor& valid);
  void restrict(Search& search, const Hypothesis& beam, double* row) const;
  void advance(Search& search, const double* rows, int64_t first_row, std::vector<int64_t>& parents);
  Hypothesis finish(const Hypothesis& beam) const;

  const core::Model& model_;
  const models::SpecialTokens& special_;
  const BeamSearchOptions& options_;
  const int64_t width_;
  int64_t vocabulary_ = 0, length_ = 0;
  core::State state_;
  std::vector<Search> searches_;
  std::vector<size_t> running_;  ///< sentences that are not finished
};

at::Tensor BeamSearch::log_probabilities(const at::Tensor& source, const at::Tensor& valid) {
  std::vector<int64_t> last;
  for (const size_t sentence : running_) {
    for (const Hypothesis& beam : searches_[sentence].beams)
      last.push_back(beam.tokens.empty() ? special_.eos : beam.tokens.back());
  }
  core::Segment segment;
  segment.tokens = at::tensor(last, at::kLong).to(device_of(model_)).unsqueeze(1);
  segment.part = {length_ == 1, false};
  segment.source = source;
  segment.source_valid = valid;
  core::StepResult step = model_.forward(segment, state_);
  state_ = std::move(step.state);
  const at::Tensor probabilities = at::log_softmax(model_.logits(step.hidden).squeeze(1), -1);
  return probabilities.to(at::kCPU, at::kDouble).contiguous();
}

void BeamSearch::restrict(Search& search, const Hypothesis& beam, double* row) const {
  const double end = row[special_.eos];
  const auto done = static_cast<int64_t>(search.prefix.size());
  if (length_ <= done) {
    const int64_t token = search.prefix[static_cast<size_t>(length_ - 1)];
    const double kept = row[token];
    std::fill_n(row, vocabulary_, kNever);
    row[token] = kept;
    return;
  }
  row[special_.pad] = kNever;
  if (options_.no_repeat_ngram > 0) forbid_repeats(beam.tokens, options_.no_repeat_ngram, row);
  if (length_ <= options_.min_len) row[special_.eos] = kNever;
  if (length_ <= search.limit) return;
  std::fill_n(row, vocabulary_, kNever);
  row[special_.eos] = end;
}

Hypothesis BeamSearch::finish(const Hypothesis& beam) const {
  Hypothesis done = beam;
  done.score = done.sum / std::pow(static_cast<double>(done.tokens.size()), options_.length_penalty);
  return done;
}

/// Continues the beams of a sentence, whose log probabilities start at `rows`. parents: appends the row of the batch
/// from which each of its new beams goes on.
void BeamSearch::advance(Search& search, const double* rows, int64_t first_row, std::vector<int64_t>& parents) {
  struct Candidate {
    double sum;
    int64_t beam, token;
  };
  std::vector<Candidate> candidates;
  std::vector<double> row(static_cast<size_t>(vocabulary_));
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.sum > b.sum || (a.sum == b.sum && std::pair(a.beam, a.token) < std::pair(b.beam, b.token));
  };
  const auto wanted = static_cast<size_t>(2 * width_);
  for (int64_t b = 0; b < static_cast<int64_t>(search.beams.size()); ++b) {
    std::copy_n(rows + b * vocabulary_, vocabulary_, row.begin());
    const Hypothesis& beam = search.beams[static_cast<size_t>(b)];
    restrict(search, beam, row.data());
    for (int64_t token = 0; token < vocabulary_; ++token) {
      const double sum = beam.sum + row[static_cast<size_t>(token)];
      if (std::isnan(sum)) throw base::NotFinite("translation: the probabilities of the model are not finite");
      if (sum == kNever) continue;
      if (candidates.size() == wanted && !better({sum, b, token}, candidates.front())) continue;
      if (candidates.size() == wanted) {
        std::pop_heap(candidates.begin(), candidates.end(), better);
        candidates.pop_back();
      }
      candidates.push_back({sum, b, token});
      std::push_heap(candidates.begin(), candidates.end(), better);
    }
  }
  std::sort(candidates.begin(), candidates.end(), better);
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

std::vector<std::vector<Hypothesis>> BeamSearch::run(const at::Tensor& source, const at::Tensor& valid,
                                                     const std::vector<std::vector<int64_t>>& prefix) {
  const c10::InferenceMode inference;
  const int64_t batch = source.size(0);
  const at::Tensor counts = valid.defined() ? valid.sum(1).to(at::kCPU) : at::Tensor();
  searches_.resize(static_cast<size_t>(batch));
  for (int64_t b = 0; b < batch; ++b) {
    Search& search = searches_[static_cast<size_t>(b)];
    const int64_t tokens = valid.defined() ? counts[b].item<int64_t>() : source.size(1);
    search.limit = static_cast<int64_t>(std::floor(options_.max_len_a * static_cast<double>(tokens))) +
                   options_.max_len_b;
    search.beams.resize(1);
    if (!prefix.empty()) search.prefix = prefix[static_cast<size_t>(b)];
    running_.push_back(static_cast<size_t>(b));
  }
  state_ = model_.initial_state(batch);
  for (length_ = 1; !running_.empty(); ++length_) {
    const bool first = length_ == 1;
    const at::Tensor rows = log_probabilities(first ? source : at::Tensor(), first ? valid : at::Tensor());
    vocabulary_ = rows.size(1);
    base::require(width_ <= vocabulary_, "[translate] beam_size: expected at most the vocabulary's {}, found {}",
                  vocabulary_, width_);
    std::vector<int64_t> parents;
    std::vector<size_t> still;
    int64_t row = 0;
    for (const size_t sentence : running_) {
      Search& search = searches_[sentence];
      const auto count = static_cast<int64_t>(search.beams.size());
      const size_t before = parents.size();
      advance(search, rows.const_data_ptr<double>() + row * vocabulary_, row, parents);
      row += count;
      if (search.finished.size() == static_cast<size_t>(width_) || search.beams.empty()) {
        parents.resize(before);
      } else {
        still.push_back(sentence);
      }
    }
    running_ = std::move(still);
    if (!running_.empty()) state_ = select_batch(state_, at::tensor(parents, at::kLong).to(source.device()));
  }
  std::vector<std::vector<Hypothesis>> results;
  for (Search& search : searches_) {
    std::stable_sort(search.finished.begin(), search.finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    results.push_back(std::move(search.finished));
  }
  return results;
}

}  // namespace

std::vector<std::vector<Hypothesis>> beam_search(const core::Model& model, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix) {
  const int64_t words = core::pair_input(model.input()).target_vocab_size;
  base::require(options.beam_size <= words, "[translate] beam_size: expected at most the vocabulary's {}, found {}",
                words, options.beam_size);
  base::require(prefix.empty() || static_cast<int64_t>(prefix.size()) == source.size(0),
                "[translate] expected one prefix per sentence, {}, found {}", source.size(0), prefix.size());
  return BeamSearch(model, special, options).run(source, valid, prefix);
}

}  // namespace mnemo::search
