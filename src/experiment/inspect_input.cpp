#include "experiment/inspect_input.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "experiment/experiment.h"
#include "models/model.h"
#include "tasks/task.h"

namespace mnemo::experiment {
namespace {

/// Segments of a text that are taken for a sample: enough for memories to hold something.
constexpr size_t kTextSegments = 4;

std::string word_of(const text::Tokenizer* tokenizer, int64_t id) {
  return tokenizer == nullptr ? std::to_string(id) : base::printable(tokenizer->decode(std::vector<int64_t>{id}));
}

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers;
  const char *at = text.data(), *end = text.data() + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t number = 0;
    const auto read = std::from_chars(at, end, number);
    base::require(read.ec == std::errc() && number >= 0,
                  "inspect: --tokens: expected numbers separated by spaces, found '{}'", text);
    numbers.push_back(number);
    at = read.ptr;
  }
  return numbers;
}

std::vector<data::Batch> cut(const std::vector<int64_t>& tokens, int64_t segment_size, bool reset_segments) {
  std::vector<data::Batch> segments;
  const at::Tensor all = at::tensor(tokens, at::kLong).unsqueeze(0);
  for (int64_t first = 0; first < all.size(1); first += segment_size) {
    data::Batch segment;
    segment.input.tokens = all.narrow(1, first, std::min(segment_size, all.size(1) - first));
    if (reset_segments) segment.reset = at::ones({1}, at::kBool);
    segments.push_back(segment);
  }
  return segments;
}

std::vector<data::Batch> sample_of(const recipes::Recipe& recipe, const bundle::Bundle& stored, int64_t row,
                                   int64_t segment_size) {
  Experiment experiment = make_experiment(recipe);
  if (!stored.folder.empty()) require_same_vocabulary(stored.folder, experiment, "inspect: --sample");
  const int64_t batch = experiment.task->batch_size();
  base::require(row >= 0 && row < batch, "inspect: --sample: expected 0 to {} (the run's batch), found {}", batch - 1,
                row);
  std::vector<data::Batch> segments;
  do {
    for (const data::Batch& segment : experiment.task->next(core::TokenInput{.segment_size = segment_size}))
      segments.push_back(data::rows(segment, row, 1));
  } while (experiment.task->carries_state() && segments.size() < kTextSegments);
  return segments;
}

}  // namespace

InputSegments read_input(const InspectInput& input, const bundle::Bundle& stored,
                         const std::optional<recipes::Recipe>& recipe) {
  base::require(static_cast<int>(input.text.has_value()) + static_cast<int>(input.tokens.has_value()) +
                        static_cast<int>(input.sample.has_value()) ==
                    1,
                "inspect: expected one of --text, --tokens and --sample");
  const auto& [vocabulary, segment_size] = core::token_input(stored.model->input());
  const text::Tokenizer* tokenizer = stored.tokenizer.get();
  InputSegments found;
  if (input.sample) {
    base::require(
        recipe.has_value(),
        "inspect: --sample: the model is not in a run's folder, so its data are unknown; use --text or --tokens");
    found.segments = sample_of(*recipe, stored, *input.sample, segment_size);
  } else if (input.text) {
    base::require(tokenizer != nullptr, "inspect: --text: the model has no vocabulary; use --tokens or --sample");
    const std::vector<int32_t> ids = tokenizer->encode(*input.text, "inspect: --text", text::Unknown::warn);
    found.segments = cut({ids.begin(), ids.end()}, segment_size, stored.conventions.resets_segments());
  } else {
    const std::vector<int64_t> tokens = numbers_of(*input.tokens);
    for (const int64_t token : tokens) {
      base::require(token < vocabulary, "inspect: --tokens: expected tokens 0 to {}, found {}", vocabulary - 1, token);
    }
    found.segments = cut(tokens, segment_size, stored.conventions.resets_segments());
  }
  base::require(!found.segments.empty(), "inspect: the input has no tokens");
  for (const data::Batch& segment : found.segments) {
    const at::Tensor row = segment.input.tokens[0].to(at::kLong).contiguous();
    std::vector<std::string> words;
    for (int64_t i = 0; i < row.size(0); ++i) words.push_back(word_of(tokenizer, row.const_data_ptr<int64_t>()[i]));
    found.words.push_back(std::move(words));
  }
  return found;
}

}  // namespace mnemo::experiment
