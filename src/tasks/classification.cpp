#include "tasks/classification.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "core/model.h"
#include "distributed/shared_batches.h"
#include "metrics/agreement.h"
#include "metrics/likelihood.h"
#include "tasks/data_position.h"
#include "tasks/start_documents.h"

namespace mnemo::tasks {
namespace {

constexpr const char* kLabels = "labels";

}  // namespace

std::vector<data::Batch> document_segments(const data::LabelledDocuments& documents, const std::vector<int64_t>& rows,
                                           int64_t segment_size, const ClassificationOptions& options) {
  base::ensure(!rows.empty() && segment_size > 0, "{} documents in segments of {}", rows.size(), segment_size);
  const auto batch = static_cast<int64_t>(rows.size());
  std::vector<int64_t> lengths;
  for (const int64_t i : rows) lengths.push_back(std::min(documents.length(i), options.max_length));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const bool one = options.pad_to_max_length ? options.max_length <= segment_size : longest <= segment_size;
  const int64_t count = (longest + segment_size - 1) / segment_size;
  const int64_t size = !one ? segment_size : options.pad_to_max_length ? options.max_length : longest;
  std::vector<data::Batch> segments;
  for (int64_t s = 0; s < count; ++s) {
    data::Batch segment;
    segment.input.tokens = at::zeros({batch, size}, at::kLong);
    segment.input.valid = at::zeros({batch, size}, at::kBool);
    if (documents.has_types()) segment.input.token_types = at::zeros({batch, size}, at::kLong);
    segment.targets = data::TokenTargets{at::full({batch, 1}, base::kIgnoreTarget, at::kLong)};
    segment.reset = at::zeros({batch}, at::kBool);
    segments.push_back(std::move(segment));
  }
  std::vector<int64_t> tokens, types;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t document = rows[static_cast<size_t>(b)], length = lengths[static_cast<size_t>(b)];
    tokens.resize(static_cast<size_t>(length));
    documents.read(document, tokens);
    if (documents.has_types()) {
      types.resize(tokens.size());
      documents.read_types(document, types);
    }
    const int64_t own = (length + size - 1) / size;  // segments of this document, aligned to the end
    segments[static_cast<size_t>(count - own)].reset[b] = true;
    for (int64_t s = count - own, at = 0; s < count; ++s) {
      data::Batch& segment = segments[static_cast<size_t>(s)];
      const bool is_short = options.align_left ? s + 1 == count : at == 0;
      const int64_t part = is_short ? length - (own - 1) * size : size;
      std::copy_n(tokens.begin() + at, part, segment.input.tokens.mutable_data_ptr<int64_t>() + b * size);
      if (documents.has_types())
        std::copy_n(types.begin() + at, part, segment.input.token_types.mutable_data_ptr<int64_t>() + b * size);
      std::fill_n(segment.input.valid.mutable_data_ptr<bool>() + b * size, part, true);
      at += part;
      if (s + 1 < count && !options.ask_every_segment) continue;
      data::token_targets(segment)[b][0] = documents.label(document);
      ++segment.num_targets;
    }
  }
  for (data::Batch& segment : segments) {
    if (segment.input.valid.all().item<bool>()) segment.input.valid.reset();
  }
  // Every batch starts from the initial state anyway, so no reset is needed.
  segments.front().reset.reset();
  return segments;
}

at::Tensor document_logits(const core::Model& model, const data::LabelledDocuments& documents,
                           const std::vector<int64_t>& rows, const ClassificationOptions& options,
                           const std::function<void(const data::Batch&, const core::StepResult&)>& each) {
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  core::State state = model.initial_state(static_cast<int64_t>(rows.size()));
  at::Tensor hidden;
  for (const data::Batch& one :
       document_segments(documents, rows, core::token_input(model.input()).segment_size, options)) {
    const data::Batch segment = to(one, device);
    state = start_documents(model, state, segment.reset);
    core::StepResult step = model.forward(segment.input, state);
    state = std::move(step.state);
    if (each) each(segment, step);
    hidden = step.hidden;
  }
  return model.logits(hidden).flatten(0, -2);
}

Classification::Classification(data::LabelledSets sets, const ClassificationOptions& options)
    : sets_(std::move(sets)),
      options_(options),
      batches_({sets_.train->size(), options.shuffle, options.seed}, options.batch_size) {}

std::vector<data::Batch> Classification::next(const core::ModelInput& input) {
  const int64_t segment_size = core::token_input(input).segment_size;
  return document_segments(*sets_.train, batches_.next().samples, segment_size, options_);
}

std::optional<Evaluation> Classification::evaluate(const core::Model& model, data::Part part) const {
  if (!has(part)) return std::nullopt;
  const auto& documents = sets_.part(part);
  base::require(documents->vocabulary_size() <= core::token_input(model.input()).vocab_size,
                "evaluation: the documents have {} distinct tokens, but the model's vocabulary only {}",
                documents->vocabulary_size(), core::token_input(model.input()).vocab_size);
  distributed::SharedBatches shared(ranks());
  const auto measure = [&](const std::vector<int64_t>& rows) {
    metrics::Likelihood likelihood;
    std::vector<double> counts(static_cast<size_t>(2 + 2 * options_.eval_batch_size), -1.0);  // -1: no such row
    const auto score = [&](const data::Batch& segment, const core::StepResult& step) {
      if (segment.num_targets == 0) return;
      const at::Tensor& targets = data::token_targets(segment);
      likelihood.add(model.nll(step.hidden, targets), targets);
    };
    const at::Tensor best = document_logits(model, *documents, rows, options_, score).argmax(-1).cpu();
    for (size_t b = 0; b < rows.size(); ++b) {
      counts[2 + 2 * b] = static_cast<double>(best[static_cast<int64_t>(b)].item<int64_t>());
      counts[3 + 2 * b] = static_cast<double>(documents->label(rows[b]));
    }
    counts[0] = likelihood.nll_sum();
    counts[1] = static_cast<double>(likelihood.count());
    shared.add(counts);
  };
  for_own_batches(shared, documents->size(), options_.eval_samples, options_.eval_batch_size, measure);
  metrics::Likelihood likelihood;
  std::vector<int64_t> predictions, labels;
  for (const std::vector<double>& counts : shared.all()) {
    likelihood.add(counts[0], static_cast<int64_t>(counts[1]));
    for (size_t b = 2; b < counts.size() && counts[b] >= 0; b += 2) {
      predictions.push_back(static_cast<int64_t>(counts[b]));
      labels.push_back(static_cast<int64_t>(counts[b + 1]));
    }
  }
  const metrics::ClassScores scores = metrics::class_scores(predictions, labels);
  Evaluation found{{{"accuracy", scores.accuracy}, {"nll", likelihood.nll()}}, static_cast<int64_t>(labels.size())};
  if (documents->num_labels() == 2) found.metrics.emplace_back("f1", scores.f1);
  found.metrics.emplace_back("macro_f1", scores.macro_f1);
  found.metrics.emplace_back("matthews", scores.matthews);
  return found;
}

weights::NamedTensors Classification::save() const {
  weights::NamedTensors saved = batches_.save(sets_.train->fingerprint());
  saved.emplace_back(kLabels, at::full({1}, static_cast<int64_t>(sets_.train->labels_fingerprint()), at::kLong));
  return saved;
}

void Classification::load(const std::function<at::Tensor(const std::string&)>& find) {
  const bool same = !find(kLabels).defined() ||  // of an earlier version
                    saved_number(find, kLabels) == static_cast<int64_t>(sets_.train->labels_fingerprint());
  base::require(same, "data position: it belongs to other labels than those of data.train");
  batches_.load(find, sets_.train->fingerprint(), "other documents than those of data.train");
}

}  // namespace mnemo::tasks
