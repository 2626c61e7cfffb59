#include "infer/token_graphs.h"

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "ops/cuda.h"
#include "ops/fixed_shapes.h"

namespace mnemo::infer {
namespace {

constexpr int64_t kLongestStretch = 512;
constexpr size_t kMostSteps = 32;
constexpr int64_t kAlignment = 64;  ///< of a field in its type's memory, in elements

/// The dimensions in which fields have gained one row, -1 for those that have kept their shape; nothing if the states
/// differ in another way.
std::optional<std::vector<int64_t>> growth(const core::State& before, const core::State& after) {
  const auto old = before.fields(), now = after.fields();
  if (old.size() != now.size()) return std::nullopt;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < old.size(); ++i) {
    const at::Tensor &a = old[i].second, &b = now[i].second;
    std::vector<int64_t> sizes = a.sizes().vec();
    const int64_t rows = old[i].first.dim("M");
    dims.push_back(a.sizes() == b.sizes() ? -1 : rows);
    if (dims.back() >= 0 && a.dim() == b.dim()) ++sizes[static_cast<size_t>(rows)];
    if (old[i].first.path != now[i].first.path || a.scalar_type() != b.scalar_type() || b.sizes() != sizes)
      return std::nullopt;
  }
  return dims;
}

std::vector<const void*> places_of(const core::Model& model) {
  std::vector<const void*> places;
  for (const layers::Parameter& parameter : model.parameters().all())
    places.push_back(parameter.tensor.const_data_ptr());
  return places;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

/// A token's step: from the state in its memory to the next, in place.
struct TokenGraphs::Step {
  std::vector<int64_t> growing;
  std::map<at::ScalarType, at::Tensor> memory = {};  ///< of all fields of a type
  std::vector<at::Tensor> fields = {};               ///< parts of it
  std::vector<std::string> paths = {};
  core::State state = {};  ///< made of them
  at::Tensor token = {}, logits = {};
  ops::FixedShapes constants = {};
  Work again = {};
};

TokenGraphs::TokenGraphs(std::shared_ptr<const core::Model> model, Record record, int64_t first_stretch)
    : model_(std::move(model)), record_(std::move(record)), first_stretch_(first_stretch) {}

TokenGraphs::~TokenGraphs() = default;

void TokenGraphs::run_pending(Progress& progress) {
  base::ensure(progress.pending >= 0, "token graphs run a pending token");
  const core::Part part = part_of(*model_, progress.used, 1);
  const bool inside = !part.starts && !part.ends;
  if (inside && enter(progress)) return run_recording(progress);
  running_ = nullptr;
  const core::State before = progress.state;
  infer::run_pending(*model_, progress);
  if (inside) growing_ = growth(before, progress.state);
}

/// Whether there is a step for the progress; its memory then holds the state.
bool TokenGraphs::enter(const Progress& progress) {
  if (given_up_) return false;
  if (std::vector<const void*> places = places_of(*model_); places != weights_ || steps_.size() > kMostSteps) {
    running_ = nullptr;
    steps_.clear();
    weights_ = std::move(places);
  }
  if (goes_on(progress.state)) return true;
  running_ = nullptr;
  const Fields fields = progress.state.fields();
  if (!growing_ || growing_->size() != fields.size()) return false;
  padding_ = end_of_stretch(progress.used) - progress.used;
  std::vector<int64_t> shapes;
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto& [field, tensor] = fields[i];
    const int64_t dim = (*growing_)[i];
    if (dim >= 0 && dim != field.dim("M")) return false;
    shapes.push_back(dim);
    for (int64_t d = 0; d < tensor.dim(); ++d) shapes.push_back(tensor.size(d) + (d == dim ? padding_ : 0));
  }
  auto found = steps_.find(shapes);
  if (found == steps_.end()) found = steps_.emplace(shapes, recorded_step(progress.state, fields)).first;
  if (found->second == nullptr) return false;
  running_ = found->second.get();
  load(*running_, fields);
  return true;
}

/// Whether it is the state that was handed out last, and there is room for another row.
bool TokenGraphs::goes_on(const core::State& state) const {
  if (running_ == nullptr || padding_ == 0) return false;
  const Fields fields = state.fields();
  return std::ranges::equal(fields, handed_out_,
                            [](const auto& field, const at::Tensor& tensor) { return field.second.is_same(tensor); });
}

/// Tokens of a segment after which another recording takes over.
int64_t TokenGraphs::end_of_stretch(int64_t used) const {
  int64_t end = first_stretch_;
  while (end <= used) end += std::min(end, kLongestStretch);
  return std::min(end, core::token_input(model_->input()).segment_size - 1);
}

std::unique_ptr<TokenGraphs::Step> TokenGraphs::empty_step(const core::State& state, const Fields& fields) const {
  auto step = std::make_unique<Step>(Step{*growing_});
  std::map<at::ScalarType, int64_t> counts;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto& [field, tensor] = fields[i];
    shapes.push_back(tensor.sizes().vec());
    if (const int64_t dim = step->growing[i]; dim >= 0) shapes.back()[static_cast<size_t>(dim)] += padding_;
    int64_t& count = counts[tensor.scalar_type()];
    offsets.push_back(count);
    count += (c10::multiply_integers(shapes.back()) + kAlignment - 1) / kAlignment * kAlignment;
    step->paths.push_back(field.path);
  }
  const at::TensorOptions options = at::TensorOptions().device(device_of(*model_));
  for (const auto& [type, count] : counts) step->memory[type] = at::zeros({count}, options.dtype(type));
  for (size_t i = 0; i < fields.size(); ++i) {
    const int64_t count = c10::multiply_integers(shapes[i]);
    step->fields.push_back(step->memory[fields[i].second.scalar_type()].narrow(0, offsets[i], count).view(shapes[i]));
  }
  size_t next = 0;
  step->state = state.map([&](const core::Field&, const at::Tensor&) { return step->fields[next++]; });
  step->token = at::zeros({1, 1}, options.dtype(at::kLong));
  return step;
}

/// Puts a state into the step's memory, behind padding.
void TokenGraphs::load(Step& step, const Fields& fields) const {
  for (size_t i = 0; i < fields.size(); ++i) {
    const at::Tensor& tensor = fields[i].second;
    at::Tensor place = step.fields[i];
    if (const int64_t dim = step.growing[i]; dim >= 0) {
      place.narrow(dim, 0, padding_).zero_();
      place = place.narrow(dim, padding_, tensor.size(dim));
    }
    place.copy_(tensor);
  }
}

/// Null if the shapes do not stay, or the step cannot be recorded; then all later ones are not tried.
std::unique_ptr<TokenGraphs::Step> TokenGraphs::recorded_step(const core::State& state, const Fields& fields) {
  try {
    std::unique_ptr<Step> step = empty_step(state, fields);
    load(*step, fields);
    if (!advance(*step)) return nullptr;
    step->constants.complete();
    step->again = record_([this, step = step.get()] { base::require(advance(*step), "a token's shapes changed"); });
    return step;
  } catch (const std::exception& error) {
    given_up_ = true;
    TORCH_WARN_ONCE("tokens of this model are not written by CUDA graphs: ", first_line(error.what()));
    return nullptr;
  }
}

/// Runs the token in the step's memory; false, with the memory as it was, if the state changes its shapes.
bool TokenGraphs::advance(Step& step) const {
  const ops::FixedShapes::Scope scope(step.constants);
  core::Segment segment;
  segment.tokens = step.token;
  segment.part = {false, false};
  const core::StepResult result = model_->forward(segment, step.state);
  const at::Tensor logits = model_->logits(result.hidden.select(1, 0)).select(0, 0);
  const Fields fields = result.state.fields();
  if (fields.size() != step.fields.size()) return false;
  std::vector<at::Tensor> fresh;
  for (size_t i = 0; i < fields.size(); ++i) {
    const at::Tensor& place = step.fields[i];
    at::Tensor tensor = fields[i].second;
    if (const int64_t dim = step.growing[i]; dim >= 0) {  // the first row is padding
      if (tensor.dim() != place.dim() || tensor.size(dim) != place.size(dim) + 1) return false;
      tensor = tensor.narrow(dim, 1, place.size(dim));
    }
    if (fields[i].first.path != step.paths[i] || tensor.sizes() != place.sizes() ||
        tensor.scalar_type() != place.scalar_type())
      return false;
    const at::Tensor& memory = step.memory.at(place.scalar_type());
    fresh.push_back(tensor.is_same(place) || !tensor.is_alias_of(memory) ? tensor : tensor.clone());
  }
  for (size_t i = 0; i < fields.size(); ++i) step.fields[i].copy_(fresh[i]);
  if (!step.logits.defined()) step.logits = at::empty_like(logits);
  step.logits.copy_(logits);
  return true;
}

void TokenGraphs::run_recording(Progress& progress) {
  Step& step = *std::exchange(running_, nullptr);
  step.token.fill_(progress.pending);
  step.again();
  --padding_;
  progress.state = state_after(step);
  progress.logits = step.logits.clone();
  progress.pending = -1;
  ++progress.used;
  ++tokens_;
  handed_out_.clear();
  for (const auto& [field, tensor] : progress.state.fields()) handed_out_.push_back(tensor);
  running_ = &step;
}

/// A copy of the state in the step's memory, without padding.
core::State TokenGraphs::state_after(const Step& step) const {
  std::map<at::ScalarType, at::Tensor> copies;
  for (const auto& [type, memory] : step.memory) copies.emplace(type, memory.clone());
  size_t next = 0;
  return step.state.map([&](const core::Field&, const at::Tensor& field) {
    const at::Tensor copy = copies.at(field.scalar_type())
                                .as_strided(field.sizes(), field.strides(), field.storage_offset());
    const int64_t dim = step.growing[next++];
    return dim < 0 ? copy : copy.narrow(dim, padding_, field.size(dim) - padding_);
  });
}

TokenGraphs* OwnTokenGraphs::of(const std::shared_ptr<const core::Model>& model) {
  if (!wanted_ || !ops::cuda::compiled()) return nullptr;
  if (!device_of(*model).is_cuda()) return nullptr;
  if (!graphs_) {
    graphs_ = std::make_unique<TokenGraphs>(
        model, [model](const TokenGraphs::Work& work) { return ops::cuda::recorded(device_of(*model), work); });
  }
  return graphs_.get();
}

}  // namespace mnemo::infer
