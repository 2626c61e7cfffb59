#include "inspect/cost.h"

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "core/level_head.h"
#include "inspect/filled_state.h"
#include "models/image_model.h"
#include "models/make_attention.h"
#include "models/registry.h"
#include "models/text_model.h"
#include "ops/linear/products.h"

namespace mnemo::inspect {
namespace {

/// A memory that is still growing after this many segments counts as unbounded, and no more are run.
constexpr int kMaxSegments = 4096;
/// A memory that grows and shrinks in turns (rows waiting to be compressed) is full when this many segments bring no
/// new maximum.
constexpr int kSegmentsWithoutGrowth = 16;

/// Multiply-adds in attention, a few seconds of one core.
constexpr double kLongestRun = 1e11;
/// Multiply-adds of everything that --batch and --position ask for, a minute of one core.
constexpr double kLongestAsked = 2e12;
/// Pixels of all images of --batch.
constexpr int64_t kMostPixelsAsked = int64_t{1} << 26;

/// Products of queries and keys, of weights and values, and of what is projected for each key, in one segment. Where
/// the state holds more numbers than its keys (a kNN memory, a cache of GRC), these are read and projected.
double attention_work(const models::TextModel& model, int64_t tokens, const core::State& state) {
  double work = 0.0, held = 0.0;
  const core::State one = core::select_batch(state, at::zeros({1}, at::kLong));
  for (const models::LayerTable& of : model.attend_tables(tokens, one, core::Mode::evaluate)) {
    const auto dim = static_cast<double>(model.options().backbone.stack().dim);
    work += (2.0 * static_cast<double>(of.table.num_rows()) + 3.0 * dim) * static_cast<double>(of.table.num_keys()) *
            dim * static_cast<double>(of.layers.size());
  }
  for (const auto& [field, tensor] : one.fields()) held += static_cast<double>(tensor.numel());
  const auto dim = static_cast<double>(model.options().backbone.stack().dim);
  return std::max(work, (2.0 * static_cast<double>(tokens) + 3.0 * dim) * held);
}

/// The same of a batch, with the products of its tokens and the parameters.
double segment_work(const models::TextModel& model, int64_t batch, int64_t tokens, const core::State& state) {
  return static_cast<double>(batch) * (attention_work(model, tokens, state) +
                                       static_cast<double>(tokens) * static_cast<double>(model.parameters().count()));
}

constexpr int64_t kMaxPixels = 1 << 24;

core::Segment segment_of(const models::TextModel& model, int64_t batch, int64_t tokens) {
  core::Segment segment;
  segment.tokens = at::zeros({batch, tokens}, at::TensorOptions(at::kLong).device(core::device_of(model)));
  return segment;
}

bool holds(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The memory that an attention's parameter or state field belongs to, or "attention".
std::string part_of_attention(std::string_view path) {
  const auto& memories = models::Mechanisms::all().memories;
  std::string part = "attention";
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    if (const std::string_view word = path.substr(start, end - start); memories.contains(word)) part = word;
    start = end + 1;
  }
  return part;
}

/// The part that a parameter belongs to.
std::string part_of_parameter(std::string_view name) {
  if (holds(name, ".attn.")) return part_of_attention(name);
  if (holds(name, ".ffn.")) return "feed_forward";
  if (holds(name, "norm") || holds(name, ".scale")) return "norms";
  for (const char* part : {"positions", "token_types", "patch_embedding", "class_token", "merging", ".stem."}) {
    if (name.starts_with("backbone.") && holds(name, part)) return "embedding";
  }
  if (holds(name, ".blocks.")) return "convolutions";
  if (name.starts_with("backbone.")) return "attention";  // shared by the attentions of all layers
  if (name.starts_with("embed")) return "embedding";
  return std::string(name.substr(0, name.find('.')));  // head, memory
}

/// The part that a state field belongs to: the name of its memory, or norms with running statistics.
std::string part_of_state(std::string_view path) {
  if (holds(path, "norm")) return "norms";
  if (!path.starts_with("layers.")) return std::string(path.substr(0, path.find('.')));
  return part_of_attention(path);
}

class Parts {
 public:
  PartCost& at(const std::string& name) {
    const auto found = std::find_if(parts_.begin(), parts_.end(),
                                    [&](const PartCost& part) { return part.part == name; });
    return found != parts_.end() ? *found : parts_.emplace_back(PartCost{name});
  }
  std::vector<PartCost> take() { return std::move(parts_); }

 private:
  std::vector<PartCost> parts_;
};

void add(PartCost& to, const PartCost& cost, int64_t sign = 1) {
  to.flops += sign * cost.flops;
  to.parameters += sign * cost.parameters;
  to.state_bytes += sign * cost.state_bytes;
  to.model_state_bytes += sign * cost.model_state_bytes;
}

/// Fills in the cost of each part for one segment, which `run` passes through the model.
void count_parts(const core::Model& model, const core::State& state, const std::function<void()>& run,
                 ModelCost& cost) {
  Parts parts;
  const bool detects = core::level_head(model) != nullptr;  // all above the backbone is then its head
  for (const layers::Parameter& parameter : model.parameters().all()) {
    const bool of_head = detects && !parameter.name.starts_with("backbone.");
    parts.at(of_head ? "head" : part_of_parameter(parameter.name)).parameters += parameter.tensor.numel();
  }
  {
    const ops::ProductCounter counter(static_cast<int64_t>(kLongestAsked));
    run();
    for (const auto& [scope, multiply_adds] : counter.by_scope())
      parts.at(scope.empty() ? "other" : scope).flops += 2 * multiply_adds;
  }
  for (const auto& [field, tensor] : state.fields()) {
    PartCost& part = parts.at(part_of_state(field.path));
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (field.per_sequence())
      part.state_bytes += bytes / cost.batch;
    else
      part.model_state_bytes += bytes;
  }
  cost.parts = parts.take();
  for (const PartCost& part : cost.parts) add(cost.total, part);
}

ModelCost count(const models::TextModel& model, const CostOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t segment_size = options.segment_size.value_or(model.segment_size());
  const FilledState filled = fill_memories(model, options.batch, segment_size, options.position);
  base::require(filled.full && !too_long_to_run(model, segment_size, filled.state) &&
                    filled.work + segment_work(model, options.batch, segment_size, filled.state) <= kLongestAsked,
                "cost: a segment of {} tokens after {} takes too long to run; give a smaller segment_size, batch or "
                "position",
                segment_size, options.position.value_or(filled.position));
  ModelCost cost{options.batch, segment_size, filled.position, {}, {}};
  const core::Segment segment = segment_of(model, options.batch, segment_size);
  count_parts(
      model, filled.state, [&] { model.logits(model.forward(segment, filled.state).hidden); }, cost);
  return cost;
}

ModelCost count(const models::ImageModel& model, const CostOptions& options) {
  const at::NoGradGuard no_grad;
  const core::ImageInput& made_for = model.size();
  const std::vector<int64_t> size = options.image_size.empty() ? std::vector{made_for.height, made_for.width}
                                                               : options.image_size;
  ModelCost cost{options.batch, 0, 0, size, {}};
  core::Segment segment;
  segment.pixels = at::zeros({options.batch, made_for.channels, size[0], size[1]},
                             model.parameters().all().front().tensor.options().requires_grad(false));
  count_parts(
      model, model.initial_state(options.batch), [&] { model.task_logits(segment); }, cost);
  return cost;
}

void require_options(const models::TextModel& model, const CostOptions& options) {
  base::require(options.image_size.empty(), "cost: image_size: expected none for a model of texts, found {}",
                c10::str(options.image_size));
  const int64_t segment_size = options.segment_size.value_or(model.segment_size());
  base::require(segment_size >= 1 && segment_size <= 1 << 20, "cost: segment_size: expected 1 to {}, found {}", 1 << 20,
                segment_size);
  base::require(!options.position || (*options.position >= 0 && *options.position % segment_size == 0),
                "cost: position: expected a multiple of the segment's {} tokens, found {}", segment_size,
                options.position.value_or(0));
}

void require_options(const models::ImageModel& model, const CostOptions& options) {
  base::require(model.head_or_null() != nullptr, "cost: a layer_stack has no images");
  base::require(!options.segment_size && !options.position,
                "cost: expected no segment_size and no position for a model of images");
  const std::vector<int64_t>& size = options.image_size;
  base::require(size.empty() || (size.size() == 2 && size[0] >= 1 && size[1] >= 1 && size[0] <= kMaxPixels / size[1]),
                "cost: image_size: expected [height, width] of at most {} pixels, found {}", kMaxPixels,
                c10::str(size));
  const int64_t pixels = size.empty() ? model.size().height * model.size().width : size[0] * size[1];
  base::require(options.batch <= std::max<int64_t>(1, kMostPixelsAsked / pixels),
                "cost: batch: expected at most {} images of {} pixels, found {}",
                std::max<int64_t>(1, kMostPixelsAsked / pixels), pixels, options.batch);
}

}  // namespace

bool too_long_to_run(const models::TextModel& model, int64_t tokens, const core::State& state, double before) {
  return before + attention_work(model, tokens, state) > kLongestRun;
}

FilledState fill_memories(const models::TextModel& model, int64_t batch, int64_t segment_size,
                          std::optional<int64_t> position) {
  const at::NoGradGuard no_grad;
  FilledState now{model.initial_state(1)};
  now.full = segment_work(model, batch, segment_size, now.state) <= kLongestAsked &&
             position.value_or(0) / segment_size <= kMaxSegments;
  if (!now.full) return now;
  if (batch > 1) now.state = model.initial_state(batch);
  FilledState largest = now;
  const core::Segment segment = segment_of(model, batch, segment_size);
  const auto advance = [&] {
    const double work = now.work + segment_work(model, batch, segment_size, now.state);
    now = {model.forward(segment, now.state).state, now.position + segment_size, work <= kLongestAsked, work};
  };
  if (position) {
    while (now.full && now.position < *position) advance();
    return now;
  }
  // A sequence cannot be longer than its attention's table of positions, and the segment after this state counts too.
  const auto limit = model.options().backbone.causal() ? models::row_limit(model.options().backbone.stack().attention)
                                                       : std::nullopt;
  int64_t before = -1, most = -1;
  int since = 0;
  double work = 0.0;
  for (int i = 0; i < kMaxSegments; ++i, advance()) {
    const int64_t bytes = core::num_bytes(now.state, core::Lifetime::sequence);
    since = bytes > most ? 0 : since + 1;
    if (bytes >= most) largest = now;
    if ((bytes == before && i > 1) || since == kSegmentsWithoutGrowth) break;
    most = std::max(most, bytes);
    before = bytes;
    if (limit && now.position + 2 * segment_size > limit->rows) break;
    if (!now.full || too_long_to_run(model, segment_size, now.state, work)) {
      largest.full = false;
      break;
    }
    work += attention_work(model, segment_size, now.state);
  }
  return largest;
}

namespace {

template <class Kind>
ModelCost cost_with_memories(const Kind& model, const CostOptions& options) {
  base::require(options.batch >= 1 && options.batch <= 1 << 16, "cost: batch: expected 1 to {}, found {}", 1 << 16,
                options.batch);
  require_options(model, options);
  ModelCost cost = count(model, options);
  const at::ScalarType dtype = model.parameters().all().front().tensor.scalar_type();
  for (size_t i = 0; i < model.options().memory.size(); ++i) {
    models::ModelOptions without = model.options();
    without.memory.erase(without.memory.begin() + static_cast<std::ptrdiff_t>(i));
    PartCost added = cost.total;
    added.part = model.options().memory[i].type();
    add(added, count(Kind(without, 0, dtype), options).total, -1);
    cost.added.push_back(added);
  }
  return cost;
}

}  // namespace

ModelCost count_cost(const models::TextModel& model, const CostOptions& options) {
  return cost_with_memories(model, options);
}

ModelCost count_cost(const models::ImageModel& model, const CostOptions& options) {
  return cost_with_memories(model, options);
}

}  // namespace mnemo::inspect
