#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include <map>

#include "base/error.h"
#include "base/options.h"
#include "train/trainer.h"
#include "weights/load_into.h"
#include "weights/lora.h"
#include "weights/model_tensors.h"

// Files of a training's checkpoint:
//   model.safetensors      parameters, and per-model state by its path
//   optimiser.safetensors  moments and step counts; the schedule's state under "schedule."
//   state.safetensors      the state carried to the next step, part A's under "part.A."
//   lora.safetensors       with LoRA, the trained factors and parameters (weights/lora.h)
//   average.safetensors    the moving average of the parameters, with ema_decay
//   data.safetensors       where the data goes on
//   trainer.safetensors    counters, running sums, the generators' states, the history; of several ranks, the order of
//                          the gradients in their sums
//   timing.safetensors     seconds; the only file that differs between two runs of the same recipe
//   train.json             the options
// and the trainer's files: what makes a model folder of it (config.json, vocabulary.json, ...)
namespace mnemo::train {
namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimiser = "optimiser.safetensors";
constexpr const char* kState = "state.safetensors";
constexpr const char* kData = "data.safetensors";
constexpr const char* kTrainer = "trainer.safetensors";
constexpr const char* kTiming = "timing.safetensors";
constexpr const char* kOptions = "train.json";
constexpr const char* kGradientOrder = "gradient_order";
constexpr const char* kLossParts = "loss_parts";

std::string part_prefix(size_t part) { return fmt::format("part.{}.", part); }

at::Tensor integers(const std::vector<int64_t>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

at::Tensor reals(const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

const at::Tensor& checked(const weights::TensorFile& file, const std::string& name, at::ScalarType dtype, int64_t count,
                          const std::string& where) {
  const at::Tensor& tensor = file.at(name, where);
  base::require(tensor.scalar_type() == dtype && tensor.dim() == 1 && tensor.size(0) == count,
                "{}: \"{}\": expected {} [{}], found {} {}", where, name, at::toString(dtype), count,
                at::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
  return tensor;
}

void restore_generator(at::Generator generator, const weights::TensorFile& file, const std::string& name,
                       const std::string& where) {
  const at::Tensor& state = checked(file, name, at::kByte, generator.get_state().numel(), where);
  try {
    generator.set_state(state);
  } catch (const c10::Error&) {
    base::input_error("{}: \"{}\": expected the state of a generator, found other bytes", where, name);
  }
}

/// The state of one part. Throws InputError if it is not one of `rows` sequences.
core::State load_state(const core::Model& model, const std::map<std::string, at::Tensor>& tensors, size_t part,
                       int64_t rows, const std::string& where) {
  const std::string prefix = part_prefix(part);
  core::State state;
  try {
    state = core::load(model.initial_state(rows), [&](const std::string& path) {
      const auto found = tensors.find(prefix + path);
      return found == tensors.end() ? at::Tensor() : found->second;
    });
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", where, error.what());
  }
  for (const auto& [field, tensor] : state.fields()) {
    base::require(!field.per_sequence() || tensor.size(field.dim("B")) == rows,
                  "{}: '{}' is the state of {} sequences, expected {}: batch_size and accumulate must stay the same",
                  where, prefix + field.path, tensor.size(field.dim("B")), rows);
  }
  return core::detach(state);
}

/// The data go on at a number of batches: of the same size, in the same order; and so does the optimizer.
void require_same_order(const weights::CheckpointReader& reader, const TrainOptions& options,
                        const std::string& where) {
  if (!reader.has(kOptions)) return;
  const base::Node before = base::parse_json(reader.file(kOptions), where);
  const base::Node now = base::write_options(base::read_options<TrainOptions>(base::write_options(options)));
  for (const char* key : {"batch_size", "shuffle", "seed"}) {
    const base::Node* old = before.find(key);
    base::require(old == nullptr || *old == now.at(key),
                  "{}: the run has train.{} = {}, and its data can only continue with the same value; found {}", where,
                  key, old == nullptr ? "" : base::to_json(*old, -1), base::to_json(now.at(key), -1));
  }
  const base::Node* old = before.find("optimiser");
  if (old == nullptr || !old->is_table()) return;
  base::require(base::type_of(*old) == base::type_of(now.at("optimiser")),
                "{}: the run has the optimizer \"{}\"; expected the same, found \"{}\"", where, base::type_of(*old),
                base::type_of(now.at("optimiser")));
}

}  // namespace

/// The update itself may have left the finite numbers, which no later step would bring back.
void Trainer::require_finite_weights() const {
  weights::NamedTensors all = weights::model_tensors(model_);
  if (average_) {
    const weights::NamedTensors average = average_->state();
    all.insert(all.end(), average.begin(), average.end());
  }
  for (const auto& [name, tensor] : all) {
    if (!tensor.is_floating_point() || tensor.isfinite().all().item<bool>()) continue;
    throw base::NotFinite(
        fmt::format("training: step {}: '{}' is not finite after the update, so it is not saved; {}; try a lower "
                    "train.optimiser.lr",
                    steps_, name, last_checkpoint()));
  }
}

std::string Trainer::save() {
  require_finite_weights();
  if (group_) require_equal_ranks();
  const weights::NamedTensors optimiser = whole_optimiser_state(), carried = carried_state();
  if (writes()) checkpoint_ = write_checkpoint(optimiser, carried);
  if (group_) checkpoint_ = group_->broadcast(checkpoint_);
  saved_ = steps_;
  return checkpoint_;
}

weights::NamedTensors Trainer::whole_optimiser_state() {
  weights::NamedTensors named = shards_ ? shards_->gathered(optimiser_->state()) : optimiser_->state();
  for (const auto& [name, tensor] : schedule_->state()) named.emplace_back("schedule." + name, tensor);
  return named;
}

void Trainer::load_optimiser(const weights::TensorFile& saved, const std::string& where) {
  const weights::NamedTensors whole = shards_ ? shards_->room(optimiser_->state()) : optimiser_->state();
  weights::NamedTensors named = whole;
  // Another schedule than before begins afresh.
  weights::TensorFile file = saved;
  const weights::NamedTensors rates = schedule_->state();
  const bool goes_on = !rates.empty() && std::ranges::all_of(rates, [&](const auto& one) {
    return file.find("schedule." + one.first) != nullptr;
  });
  if (goes_on) {
    for (const auto& [name, tensor] : rates) named.emplace_back("schedule." + name, tensor);
  } else {
    std::erase_if(file.tensors, [](const auto& one) { return one.first.starts_with("schedule."); });
  }
  weights::load_into(file, whole, where, {.strict = false, .finite = true, .compare_only = true});
  weights::load_into(file, named, where, {.strict = true, .convert_floating = false});
  if (shards_) shards_->take(whole, optimiser_->state());
}

std::string Trainer::write_checkpoint(const weights::NamedTensors& optimiser, const weights::NamedTensors& carried) {
  weights::CheckpointWriter writer(run_folder_, steps_);
  writer.add_tensors(kModel, weights::model_tensors(model_));
  writer.add_tensors(kOptimiser, optimiser);
  if (average_) writer.add_tensors(weights::kAverageFile, average_->state());
  if (lora_) writer.add_tensors(weights::kLoraFile, lora_tensors(), lora_->metadata());
  writer.add_tensors(kState, carried);
  writer.add_tensors(kData, task_.save());

  weights::Metadata metadata;
  weights::NamedTensors own = history_.save(metadata);
  own.emplace_back("counters", integers({steps_, tokens_, running_.steps, best_.has_value() ? 1 : 0,
                                         static_cast<int64_t>(states_.size())}));
  own.emplace_back("sums", reals({running_.loss, running_.gradient_norm, best_.value_or(0.0)}));
  if (!running_.parts.empty()) own.emplace_back(kLossParts, reals(running_.parts));
  if (reducer_) own.emplace_back(kGradientOrder, reducer_->order());
  own.emplace_back("generator.cpu", generator_.get_state());
  const at::Device device = core::device_of(model_);
  if (!device.is_cpu()) own.emplace_back("generator.device", at::globalContext().defaultGenerator(device).get_state());
  writer.add_tensors(kTrainer, own, metadata);

  weights::NamedTensors timing = history_.save_seconds();
  timing.emplace_back("seconds", reals({seconds_}));
  writer.add_tensors(kTiming, timing);
  writer.add_file(kOptions, base::to_json(base::write_options(options_)) + "\n");
  for (const auto& [name, content] : files_) writer.add_file(name, content);

  std::map<std::string, double> metrics;
  if (!history_.losses.empty()) metrics["loss"] = history_.losses.back().loss;
  if (!history_.evaluations.empty()) {
    for (const auto& [name, value] : history_.evaluations.back().evaluation.metrics)
      if (!std::isnan(value)) metrics["valid." + name] = value;
  }
  return writer.commit(metrics, {options_.keep_last, is_best_});
}

weights::NamedTensors Trainer::lora_tensors() const {
  weights::NamedTensors named;
  for (const layers::Parameter& parameter : trained_) named.emplace_back(parameter.name, parameter.tensor);
  return named;
}

void Trainer::write_lora(const std::string& path) const {
  if (!lora_ || !writes()) return;
  weights::write_safetensors(path, lora_tensors(), lora_->metadata());
}

bool Trainer::resume_latest() {
  if (run_folder_.empty()) return false;
  const auto latest = weights::latest_checkpoint(run_folder_);
  if (latest) resume(latest->path);
  return latest.has_value();
}

void Trainer::resume(const std::string& checkpoint) {
  load(weights::CheckpointReader(checkpoint));
  checkpoint_ = checkpoint;
}

const EvaluationPoint* Trainer::take_best() {
  const EvaluationPoint* last = history_.evaluations.empty() ? nullptr : &history_.evaluations.back();
  const EvaluationPoint* best = out_of_patience() ? best_evaluation() : nullptr;
  if (best == nullptr || run_folder_.empty()) return last;
  const std::string path = best_checkpoint(run_folder_, *best);
  const weights::CheckpointReader reader(path);
  weights::load_model_tensors(reader.tensors(kModel), model_, path + "/" + kModel);
  if (lora_) weights::load_into(reader.tensors(weights::kLoraFile), lora_tensors(), path + "/" + weights::kLoraFile);
  if (average_)
    weights::load_into(reader.tensors(weights::kAverageFile), average_->state(), path + "/" + weights::kAverageFile,
                       {.strict = true, .convert_floating = false});
  return best;
}

/// Parameters, the factors of LoRA, the optimiser's state and the moving average.
void Trainer::load_weights(const weights::CheckpointReader& reader) {
  const std::string& path = reader.info().path;
  const auto where = [&](const char* name) { return path + "/" + name; };
  constexpr weights::LoadOptions kExact{.strict = true, .convert_floating = false};
  weights::load_model_tensors(reader.tensors(kModel), model_, where(kModel));
  base::require(reader.has(weights::kLoraFile) == (lora_ != nullptr),
                "{}: it was trained {} LoRA, and train.lora is {}", path, lora_ ? "without" : "with",
                lora_ ? "set" : "unset");
  if (lora_) {
    weights::load_into(reader.tensors(weights::kLoraFile), lora_tensors(), where(weights::kLoraFile), kExact);
    lora_->require_same_start(where(kModel));
  }
  load_optimiser(reader.tensors(kOptimiser), where(kOptimiser));
  base::require(reader.has(weights::kAverageFile) == (average_ != nullptr),
                "{}: {} moving average of the weights, and train.ema_decay is {}", path,
                average_ ? "it holds no" : "it holds a", average_ ? "set" : "unset");
  if (average_)
    weights::load_into(reader.tensors(weights::kAverageFile), average_->state(), where(weights::kAverageFile), kExact);
}

/// The states of this rank's rows, from those of all rows of each part.
void Trainer::load_states(const weights::CheckpointReader& reader, int64_t parts) {
  const std::string where = reader.info().path + "/" + kState;
  const weights::TensorFile carried = reader.tensors(kState);
  const std::map<std::string, at::Tensor> tensors(carried.tensors.begin(), carried.tensors.end());
  states_.clear();
  size_t fields = 0;
  for (int64_t part = 0; part < parts; ++part) {
    core::State whole = load_state(model_, tensors, static_cast<size_t>(part),
                                   options_.batch_size / options_.accumulate, where);
    fields += core::save(whole).size();
    const Share share = share_of(options_.batch_size, part);
    states_.push_back(share.rows == share.part_rows
                          ? std::move(whole)
                          : core::select_batch(whole, at::arange(share.offset, share.offset + share.rows, at::kLong)));
  }
  base::require(fields == tensors.size(),
                "{}: checkpoint has {} memory tensors but the model has {}; it is from a different model", where,
                tensors.size(), fields);
}

void Trainer::load(const weights::CheckpointReader& reader) {
  const std::string& path = reader.info().path;
  const auto where = [&](const char* name) { return path + "/" + name; };
  const weights::TensorFile own = reader.tensors(kTrainer), timing = reader.tensors(kTiming);
  const auto* counters = checked(own, "counters", at::kLong, 5, where(kTrainer)).const_data_ptr<int64_t>();
  const auto* sums = checked(own, "sums", at::kDouble, 3, where(kTrainer)).const_data_ptr<double>();
  base::require(counters[0] >= 0 && counters[1] >= 0 && counters[2] >= 0,
                "{}: \"counters\": expected counts, found {}, {}, {}", where(kTrainer), counters[0], counters[1],
                counters[2]);
  base::require(std::all_of(sums, sums + 3, [](double sum) { return std::isfinite(sum); }),
                "{}: \"sums\": expected finite numbers, found {}, {}, {}", where(kTrainer), sums[0], sums[1], sums[2]);
  base::require(counters[0] == reader.info().step,
                "{}: expected the state of step {}, as the manifest says, found step {}", where(kTrainer),
                reader.info().step, counters[0]);
  const bool filling = options_.replay > 0 && counters[4] == 0;  // a replay that is not full yet
  const int64_t expected_parts = carries_ && counters[0] > 0 && !filling ? options_.accumulate : 0;
  base::require(counters[4] == expected_parts,
                "{}: state of {} parts of the batch, expected {}: accumulate must stay the same", where(kTrainer),
                counters[4], expected_parts);

  require_same_order(reader, options_, where(kOptions));
  load_weights(reader);
  load_states(reader, expected_parts);
  const weights::TensorFile position = reader.tensors(kData);
  try {
    task_.load([&](const std::string& name) {
      const at::Tensor* found = position.find(name);
      return found == nullptr ? at::Tensor() : *found;
    });
  } catch (const base::InputError& error) {
    base::input_error("{}: {}", where(kData), error.what());
  }
  restore_generator(generator_, own, "generator.cpu", where(kTrainer));
  const at::Device device = core::device_of(model_);
  if (!device.is_cpu()) {
    restore_generator(at::globalContext().defaultGenerator(device), own, "generator.device", where(kTrainer));
  }
  const at::Tensor* order = own.find(kGradientOrder);
  if (reducer_ && order != nullptr && order->numel() > 0) {
    try {
      reducer_->take_order(*order);
    } catch (const base::InputError& error) {
      base::input_error("{}: {}", where(kTrainer), error.what());
    }
  }
  history_ = History::load(own, timing, where(kTrainer));
  if (!history_.evaluations.empty()) {
    const auto& measured = history_.evaluations.back().evaluation.metrics;
    base::require(
        std::any_of(measured.begin(), measured.end(),
                    [&](const auto& metric) { return metric.first == task_.metric(); }),
        "{}: the run was evaluated without {}, the metric that would now decide; expected its original settings",
        where(kTrainer), task_.metric());
  }
  seconds_ = checked(timing, "seconds", at::kDouble, 1, where(kTiming)).item<double>();
  steps_ = saved_ = counters[0];
  if (group_) group_->note_step(steps_);
  tokens_ = counters[1];
  running_ = {sums[0], sums[1], counters[2]};
  if (own.find(kLossParts) != nullptr) {
    const auto count = static_cast<int64_t>(task_.loss_parts(model_).size());
    const auto* parts = checked(own, kLossParts, at::kDouble, count, where(kTrainer)).const_data_ptr<double>();
    running_.parts.assign(parts, parts + count);
  }
  best_ = counters[3] != 0 ? std::optional<double>(sums[2]) : std::nullopt;
  is_best_ = false;
  const EvaluationPoint* best = options_.patience && !run_folder_.empty() ? best_evaluation() : nullptr;
  if (best != nullptr && best->step != steps_) best_checkpoint(path, *best);
}

std::string Trainer::best_checkpoint(const std::string& where, const EvaluationPoint& best) const {
  const auto found = weights::find_checkpoint(run_folder_, "best");
  base::require(found && found->step == best.step,
                "{}: train.patience ends with the weights of the best evaluation, at step {}, but its checkpoint is "
                "missing; restore it, or drop train.patience",
                where, best.step);
  return found->path;
}

}  // namespace mnemo::train
