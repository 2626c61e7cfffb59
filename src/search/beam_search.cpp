#include "search/beam_search.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "ops/row_kernels.h"

namespace mnemo::search {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// One sentence of the batch: its running beams, best first, and its finished hypotheses.
struct Search {
  int64_t limit = 0;
  std::vector<Hypothesis> beams, finished;
  std::vector<int64_t> samples;  ///< which sample each beam is; empty in a beam search
  std::vector<int64_t> prefix;
};

/// Tokens that would complete a sequence of `size` tokens which occurs before.
template <class T>
void forbid_repeats(const std::vector<int64_t>& tokens, int64_t size, T* row) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t head = size - 1;
  for (int64_t at = 0; at + size <= count; ++at) {
    if (std::equal(tokens.begin() + at, tokens.begin() + at + head, tokens.end() - head))
      row[tokens[static_cast<size_t>(at + head)]] = static_cast<T>(kNever);
  }
}

struct Candidate {
  double sum;
  int64_t beam, token;
};

bool is_better(const Candidate& a, const Candidate& b) {
  return a.sum > b.sum || (a.sum == b.sum && std::pair(a.beam, a.token) < std::pair(b.beam, b.token));
}

/// The best `wanted` candidates seen, as a heap with the worst in front.
class BestCandidates {
 public:
  void start(int64_t wanted) {
    wanted_ = static_cast<size_t>(wanted);
    heap_.clear();
  }
  /// Takes the tokens of a beam: log probabilities row [V] after a beam with that sum.
  template <class T>
  void take(int64_t beam, double sum, const T* row, int64_t words) {
    constexpr int64_t kPiece = 256;
    int64_t places[kPiece];
    for (int64_t from = 0; from < words; from += kPiece) {
      const int64_t found = ops::places_above(row + from, std::min(kPiece, words - from), least(sum, T()), places);
      for (int64_t i = 0; i < found; ++i)
        put({sum + static_cast<double>(row[from + places[i]]), beam, from + places[i]});
    }
  }
  const std::vector<Candidate>& in_order() {
    std::sort(heap_.begin(), heap_.end(), is_better);
    return heap_;
  }

 private:
  /// A log probability that is certainly too low.
  template <class T>
  T least(double sum, T) const {
    if (heap_.size() < wanted_) return static_cast<T>(kNever);
    const double bound = heap_.front().sum - sum;
    return static_cast<T>(bound - 1e-6 * std::abs(bound) - 1e-30);  // rounding must not exclude an equal one
  }
  void put(const Candidate& candidate) {
    if (heap_.size() == wanted_) {
      if (!is_better(candidate, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), is_better);
      heap_.pop_back();
    }
    heap_.push_back(candidate);
    std::push_heap(heap_.begin(), heap_.end(), is_better);
  }

  size_t wanted_ = 0;
  std::vector<Candidate> heap_;
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
  void allow_only(const Search& search, const Hypothesis& beam, T* row) const;
  template <class T>
  void advance(Search& search, T* rows, int64_t first_row, std::vector<int64_t>& parents);
  template <class T>
  void advance_samples(size_t sentence, const at::Tensor& rows, int64_t first_row, std::vector<int64_t>& parents);
  template <class T>
  void advance_all(const at::Tensor& rows, std::vector<int64_t>& parents);
  Hypothesis finish(const Hypothesis& beam) const;

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

/// Sets what a beam must not go on with to -inf. Throws NotFinite.
template <class T>
void BeamSearch::allow_only(const Search& search, const Hypothesis& beam, T* row) const {
  if (std::isnan(row[0])) throw base::NotFinite("translation: the probabilities of the model are not finite");
  const T end = row[special_.eos], never = static_cast<T>(kNever);
  if (length_ <= static_cast<int64_t>(search.prefix.size())) {
    const int64_t token = search.prefix[static_cast<size_t>(length_ - 1)];
    const T kept = row[token];
    std::fill_n(row, vocabulary_, never);
    row[token] = kept;
    return;
  }
  row[special_.pad] = never;
  if (options_.no_repeat_ngram > 0) forbid_repeats(beam.tokens, options_.no_repeat_ngram, row);
  if (length_ <= options_.min_len) row[special_.eos] = never;
  if (length_ <= search.limit) return;
  std::fill_n(row, vocabulary_, never);
  row[special_.eos] = end;
}

Hypothesis BeamSearch::finish(const Hypothesis& beam) const {
  Hypothesis done = beam;
  done.score = done.sum / std::pow(static_cast<double>(done.tokens.size()), options_.length_penalty);
  return done;
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
  for (size_t i = 0; i < search.beams.size(); ++i)
    allow_only(search, search.beams[i], rows.mutable_data_ptr<T>() + static_cast<int64_t>(i) * vocabulary_);
  if (length_ == 1) {
    search.beams.resize(static_cast<size_t>(width_));
    for (int64_t sample = 0; sample < width_; ++sample) search.samples.push_back(sample);
  }
  std::vector<Hypothesis> next;
  std::vector<int64_t> samples;
  for (size_t i = 0; i < search.beams.size(); ++i) {
    const int64_t row = length_ == 1 ? 0 : static_cast<int64_t>(i);
    const int64_t token = (*pick_)(rows[row], static_cast<int64_t>(sentence), search.samples[i], length_ - 1);
    Hypothesis longer = std::move(search.beams[i]);
    longer.tokens.push_back(token);
    longer.sum += rows[row][token].item<double>();
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
    if (search.finished.size() == static_cast<size_t>(width_) || search.beams.empty()) {
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
    search.beams.resize(1);
    if (!prefix.empty()) search.prefix = prefix[static_cast<size_t>(b)];
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
    results.push_back(std::move(search.finished));
  }
  return results;
}

class ModelDecoder final : public StepDecoder {
 public:
  explicit ModelDecoder(const core::Model& model) : model_(model) {}
  int64_t vocabulary() const override { return core::pair_input(model_.input()).target_vocab_size; }
  void start(const at::Tensor& source, const at::Tensor& valid) override {
    start(model_.read_source(source, valid, core::Mode::evaluate, model_.initial_state(source.size(0))));
  }
  void start(const core::State& read) override {
    state_ = read;
    begins_ = true;
  }
  at::Tensor log_probabilities(std::span<const int64_t> last) override {
    core::Segment segment;
    segment
        .tokens = at::tensor(at::IntArrayRef(last.data(), last.size()), at::kLong).to(device_of(model_)).unsqueeze(1);
    segment.part = {std::exchange(begins_, false), false};
    core::StepResult step = model_.forward(segment, state_);
    state_ = std::move(step.state);
    return at::log_softmax(model_.logits(step.hidden).squeeze(1), -1).to(at::kCPU).contiguous();
  }
  void select(std::span<const int64_t> parents) override {
    const at::Tensor rows = at::tensor(at::IntArrayRef(parents.data(), parents.size()), at::kLong);
    state_ = select_batch(state_, rows.to(device_of(model_)));
  }

 private:
  const core::Model& model_;
  bool begins_ = false;
  core::State state_;
};

void require_prefixes(const at::Tensor& source, const std::vector<std::vector<int64_t>>& prefix) {
  base::require(prefix.empty() || static_cast<int64_t>(prefix.size()) == source.size(0),
                "translation: expected one prefix per sentence, {}, found {}", source.size(0), prefix.size());
}

}  // namespace

std::unique_ptr<StepDecoder> make_model_decoder(const core::Model& model) {
  return std::make_unique<ModelDecoder>(model);
}

std::vector<std::vector<Hypothesis>> beam_search(StepDecoder& decoder, const models::SpecialTokens& special,
                                                 const at::Tensor& source, const at::Tensor& valid,
                                                 const BeamSearchOptions& options,
                                                 const std::vector<std::vector<int64_t>>& prefix,
                                                 const core::State& read) {
  base::require(options.beam_size <= decoder.vocabulary(),
                "translation: beam_size: expected at most the vocabulary's {}, found {}", decoder.vocabulary(),
                options.beam_size);
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
  ModelDecoder decoder(model);
  return beam_search(decoder, special, source, valid, options, prefix);
}

}  // namespace mnemo::search
