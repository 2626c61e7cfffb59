#include <algorithm>

#include "base/error.h"
#include "base/text_format.h"
#include "core/decode.h"
#include "experiment/experiment.h"
#include "models/full_state.h"
#include "models/text_model.h"
#include "train/optimiser.h"
#include "weights/safetensors_header.h"

// A training that does not fit is refused before its first step: it would end in the middle.
namespace mnemo::experiment {
namespace {

std::string megabytes(double bytes) { return base::grouped(static_cast<int64_t>(bytes / 1e6)); }

/// Whether every parameter is trained, so that each has a gradient and moments.
bool trains_all(const recipes::Recipe& recipe) {
  return recipe.train.only.empty() && !recipe.train.lora && !recipe.finetune;
}

/// Throws InputError if a file of so many tensors could not be read again.
void require_file_fits(const char* file, int64_t tensors, double bytes, const char* keys) {
  constexpr double kHeader = 100;  // of each tensor, about
  const double size = std::min(bytes + kHeader * static_cast<double>(tensors), 1e15);
  const auto most = static_cast<int64_t>(weights::affordable_tensors(static_cast<uint64_t>(size)));
  base::require(tensors <= most,
                "recipe: {}: {} would have {} tensors in {} MB, more than the {} with which it could be read again "
                "(docs/files.md); expected fewer or larger ones",
                keys, file, tensors, megabytes(bytes), most);
}

void require_files_fit(const Experiment& experiment, double state_bytes) {
  const train::TrainOptions& train = experiment.recipe.train;
  const layers::ParameterSet& parameters = experiment.model->parameters();
  const auto tensors = static_cast<int64_t>(parameters.all().size());
  const double bytes = 4.0 * static_cast<double>(parameters.count());
  require_file_fits("the model", tensors, bytes, "'model.backbone.num_layers'");
  const int64_t moments = train::num_moments(train.optimiser);
  if (trains_all(experiment.recipe))
    require_file_fits("the optimizer's state", moments * tensors, static_cast<double>(moments) * bytes,
                      "'model.backbone.num_layers'");
  int64_t fields = 0;
  double fresh = 0;
  for (const auto& [field, tensor] : experiment.model->initial_state(1).fields()) {
    ++fields;
    fresh += static_cast<double>(tensor.nbytes());
  }
  require_file_fits("the memory of a checkpoint", train.accumulate * fields,
                    std::max(state_bytes, fresh * static_cast<double>(train.accumulate)),
                    "'train.accumulate', 'model.backbone.num_layers'");
}

/// Memory rows that stand beside the tokens of a segment.
int64_t memory_rows(const models::Model& model) {
  const auto* text = dynamic_cast<const models::TextModel*>(&model);
  int64_t rows = 0;
  if (text == nullptr) return rows;
  for (const auto& [name, memory] : text->tokens().memories().sequences()) {
    if (const auto decoder = memory->decoder()) rows += decoder->rows().read + decoder->rows().write;
  }
  return rows;
}

/// Segments whose graphs a step keeps at once: those that gradients cross into, and its last.
int64_t kept_graphs(const Experiment& experiment, int64_t segments) {
  if (experiment.recipe.train.recompute != train::TrainOptions::Recompute::none) return 1;
  return 1 + crossed_boundaries(*experiment.model, segments - 1);
}

}  // namespace

int64_t crossed_boundaries(const core::Model& model, int64_t most) {
  int64_t crossed = 0;
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (!tensor.is_floating_point()) continue;
    const int64_t depth = model.bptt_depth(field.path);
    crossed = std::max(crossed, depth < 0 ? most : std::min(depth, most));
  }
  return crossed;
}

void require_step_fits(const Experiment& experiment, int64_t usable, const RanksHere& ranks) {
  const recipes::Recipe& recipe = experiment.recipe;
  const models::ModelOptions& model = recipe.model;
  const train::TrainOptions& train = recipe.train;
  // Each rank holds the whole model, and its share of the rows.
  const double memory = static_cast<double>(usable) / static_cast<double>(ranks.on_this_machine);
  const int64_t rank_rows = (train.batch_size + ranks.all - 1) / ranks.all;
  const std::string place = ranks.on_this_machine == 1
                                ? "this machine has"
                                : fmt::format("each of its {} processes here has", ranks.on_this_machine);
  // Gradients and moments are counted where every parameter has them.
  const int64_t parameters = experiment.model->parameters().count();
  const int64_t moments = train.shard_optimiser ? 0 : train::num_moments(train.optimiser);
  const double held = 4.0 * static_cast<double>(parameters * (trains_all(recipe) ? 2 + moments : 1));
  base::require(held <= memory,
                "recipe: 'model', 'train.optimiser': {} parameters with their gradients and the optimizer's state need "
                "{} MB, and {} {} MB",
                base::grouped(parameters), megabytes(held), place, megabytes(memory));
  if (recipe.task()->input() != tasks::InputKind::tokens) return require_files_fit(experiment, 0);
  // The state that memories carry between segments is counted exactly. They see at most the rows of the training.
  const int64_t row_tokens = experiment.tokens_per_step / train.batch_size;
  const double seen = static_cast<double>(train.steps) * static_cast<double>(row_tokens);
  const int64_t rows = seen < 1e15 ? static_cast<int64_t>(seen) + model.segment_size : INT64_MAX;
  const double state = static_cast<double>(models::full_state_bytes(*experiment.model, core::Mode::train, rows)) *
                       static_cast<double>(rank_rows);
  base::require(
      state <= memory,
      "recipe: 'model.memory', 'train.batch_size': the memories of {} sequences hold {} MB once they are full, "
      "and {} {} MB; expected fewer rows or sequences",
      rank_rows, megabytes(state), place, megabytes(memory));
  require_files_fit(experiment, state);
  // The factors were measured on decoders of several sizes; attention's buffers are not counted.
  const double row = 4.0 *
                     static_cast<double>(model.backbone.stack().num_layers *
                                             (16 * model.backbone.stack().dim + 2 * model.backbone.stack().ffn_dim) +
                                         2 * model.embedding.vocab_size);
  const int64_t graphs = kept_graphs(experiment, (row_tokens + model.segment_size - 1) / model.segment_size);
  const double sequence = row * static_cast<double>(graphs) *
                          static_cast<double>(std::min(model.segment_size, row_tokens) +
                                              memory_rows(*experiment.model));
  const int64_t together = (rank_rows + train.accumulate - 1) / train.accumulate;
  const double bytes = sequence * static_cast<double>(together) + state + held;
  const auto most = static_cast<int64_t>(static_cast<double>(together) * std::max(memory - held, 0.0) / (bytes - held));
  base::require(
      bytes <= memory,
      "recipe: 'train.batch_size', 'model.segment_size': a step of {} sequences of {} tokens{} needs about {} MB, "
      "and {} {} MB; expected {}",
      together, model.segment_size,
      graphs > 1 ? fmt::format(" with gradients through {} segments ('train.recompute')", graphs) : "",
      megabytes(bytes), place, megabytes(memory),
      most > 0 ? fmt::format("at most {} sequences at a time: a lower batch_size, or a higher train.accumulate", most)
               : "a lower segment_size: one sequence is too long");
}

}  // namespace mnemo::experiment
