#include "models/segment_memories.h"

#include <torch/types.h>

#include <ATen/record_function.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "core/append_rows.h"
#include "core/backbone.h"
#include "core/model.h"
#include "models/make_attention.h"
#include "models/registry.h"
#include "ops/fixed_shapes.h"

namespace mnemo::models {
namespace {

using core::Rule;
using core::SpanKind;

/// Checks that all rows have the same number; otherwise the batch is invalid.
int64_t uniform(const at::Tensor& numbers, const char* what) {
  const auto [least, greatest] = at::aminmax(numbers);
  base::require(
      least.item<int64_t>() == greatest.item<int64_t>(),
      "[model] sequences of one batch may start or end a segment only together: expected the same {} for all, "
      "found {} to {}",
      what, least.item<int64_t>(), greatest.item<int64_t>());
  return least.item<int64_t>();
}

/// Checks that the state has as many sequences as the segment.
void require_batch(const at::Tensor& of_state, const at::Tensor& rows) {
  base::require(of_state.size(0) == rows.size(0),
                "[model] expected a segment of {} sequences, as many as the state has, found {}", of_state.size(0),
                rows.size(0));
}

}  // namespace

SegmentMemories::SegmentMemories(const std::vector<base::TypedOptions>& list, core::MemoryBuild build, bool causal)
    : causal_(causal) {
  context_of_.assign(static_cast<size_t>(build.num_layers), -1);
  std::map<std::string, int64_t> seen;
  for (const base::TypedOptions& memory : list) {
    const std::string type = memory.type();
    const memory::Entry& entry = Mechanisms::all().memories.find(type);
    if (entry.wrap_attention) continue;
    const int64_t count = ++seen[type];
    const std::string name = count == 1 ? type : fmt::format("{}_{}", type, count);
    build.layers = layers_of(memory, build.num_layers);
    if (entry.layer_context) {
      for (const int64_t layer : build.layers)
        context_of_[static_cast<size_t>(layer)] = static_cast<int64_t>(contexts_.size());
      contexts_.push_back({name, with_location(memory, [&] { return entry.layer_context(memory, build); })});
    } else {
      sequences_.push_back({name, with_location(memory, [&] { return entry.sequence(memory, build); })});
    }
  }
  for (const int64_t context : context_of_) {
    const auto known = std::find(views_.begin(), views_.end(), context);
    view_of_.push_back(static_cast<size_t>(known - views_.begin()));
    if (known == views_.end()) views_.push_back(context);
  }
}

void SegmentMemories::require_support(const core::Backbone& backbone, const std::string& attention) const {
  for (int64_t layer = 0; layer < backbone.num_layers(); ++layer) {
    const core::AttentionSupport support = backbone.attention(layer).support();
    const int64_t context = context_of(layer);
    base::require(support.contexts || context < 0,
                  "model: attention '{}' reads only its own rows and does not support the rows of '{}'; drop that "
                  "memory or use another attention",
                  attention, context < 0 ? "" : contexts_[static_cast<size_t>(context)].name);
    // In an encoder every row may attend to every row.
    if (support.tables || !causal_) continue;
    for (const auto& [name, memory] : sequences_) {
      base::require(!memory->needs_tables(),
                    "model: attention '{}' does not support the attention mask of '{}'; use recurrent_tokens with "
                    "block_mask = \"causal\", or another attention",
                    attention, name);
    }
  }
}

core::State SegmentMemories::initial_state(int64_t batch, core::State layers) const {
  core::State::Children children;
  for (const auto& [name, memory] : contexts_) children.emplace_back(name, memory->initial_state(batch));
  for (const auto& [name, memory] : sequences_) children.emplace_back(name, memory->initial_state(batch));
  children.emplace_back("layers", std::move(layers));
  children.emplace_back("open", closed_segment());
  return core::State::list(std::move(children));
}

std::optional<int64_t> SegmentMemories::bptt_depth(std::string_view path) const {
  const auto find = [&](const auto& memories) -> std::optional<int64_t> {
    for (const auto& [name, memory] : memories) {
      if (path.size() > name.size() && path.starts_with(name) && path[name.size()] == '.')
        return memory->bptt_depth(path.substr(name.size() + 1));
    }
    return std::nullopt;
  };
  const auto depth = find(contexts_);
  return depth ? depth : find(sequences_);
}

OpenSegment SegmentMemories::closed_segment() const {
  OpenSegment closed;
  closed.valid.resize(views_.size());
  return closed;
}

const NamedMemory<core::LayerContext>* SegmentMemories::context_in(size_t view) const {
  return views_[view] < 0 ? nullptr : &contexts_[static_cast<size_t>(views_[view])];
}

void SegmentMemories::require_state(const core::State& state) const {
  for (const std::string& type : Mechanisms::all().memories.names()) {
    const auto of_type = [&](const auto& named) { return named.name == type; };
    const bool own = std::any_of(contexts_.begin(), contexts_.end(), of_type) ||
                     std::any_of(sequences_.begin(), sequences_.end(), of_type);
    base::require(state.child(type).empty() != own, "[model] the state {} a '{}'; is it of another model?",
                  own ? "lacks" : "has", type);
  }
}

core::SegmentRows SegmentMemories::start_rows(const at::Tensor& tokens, const at::Tensor& cls,
                                              const core::Segment& segment, const core::State& state,
                                              const OpenSegment& open) const {
  core::AttendTable table_of_tokens({SpanKind::tokens, tokens.size(1)}, causal_ ? Rule::causal() : Rule::all());
  core::SegmentRows result{tokens, segment.valid, {}};
  if (cls.defined()) {
    result.rows = at::cat({cls.expand({tokens.size(0), 1, -1}), tokens}, 1);
    if (segment.valid.defined()) result.valid = at::cat({segment.valid.any(1, true), segment.valid}, 1);
    table_of_tokens.prepend_rows({SpanKind::tokens, 1, core::kClassRow})
        .set_rule(SpanKind::tokens, SpanKind::tokens, Rule::all());
  }
  base::require(segment.part.starts || open.length.defined(),
                "[model] expected the state of an open segment (part.starts is false), found none");
  if (!segment.part.starts) {
    base::require(open.valid.size() == views_.size(),
                  "[model] expected an open segment seen in {} ways, found {}; is it "
                  "of another model?",
                  views_.size(), open.valid.size());
    require_batch(open.length, tokens);
  }
  for (size_t view = 0; view < views_.size(); ++view) {
    core::AttendTable table = table_of_tokens;
    const NamedMemory<core::LayerContext>* context = context_in(view);
    if (context != nullptr) context->memory->add_spans(table, state.child(context->name), segment.mode);
    if (!causal_) table.set_rule(SpanKind::tokens, SpanKind::cache, Rule::all());
    if (!segment.part.starts) {
      const Rule tokens_rule = table.rule(0, table.contexts().size());
      int64_t before = open.valid[view].size(1);
      if (segment.part.ends) {
        // The write rows have their own rules for cache, read rows and tokens, so their boundaries matter.
        const int64_t length = uniform(open.length, "rows so far"), read = uniform(open.read_rows, "memory rows");
        before -= length;
        // Without a context, the rows before the segment are padding and count as read rows.
        table.append_context({SpanKind::read, context != nullptr ? read : before + read}, tokens_rule);
        table.append_context({SpanKind::tokens, length - read}, tokens_rule);
      } else if (context == nullptr) {
        table.append_context({SpanKind::cache, 0}, tokens_rule);
      }
      table.resize_context(SpanKind::cache, before);
    }
    result.tables.push_back(std::move(table));
  }
  return result;
}

void SegmentMemories::set_valid(core::SegmentRows& rows, const core::State& state, const OpenSegment& open,
                                bool starts) const {
  for (size_t view = 0; view < views_.size(); ++view) {
    std::vector<at::Tensor> parts;
    bool all_real = !rows.valid.defined() && ops::FixedShapes::now() == nullptr;
    if (!starts) {
      parts.push_back(open.valid[view]);
      all_real = all_real && open.valid[view].all().item<bool>();
    } else if (const auto* context = context_in(view)) {
      const at::Tensor valid = context->memory->valid(state.child(context->name));
      require_batch(valid, rows.rows);
      all_real = all_real && (valid.numel() == 0 || valid.all().item<bool>());
      parts.push_back(valid);
    }
    if (all_real) continue;
    parts.push_back(rows.valid.defined() ? rows.valid
                                         : at::ones({rows.rows.size(0), rows.rows.size(1)},
                                                    rows.rows.options().dtype(at::kBool).requires_grad(false)));
    rows.tables[view].set_valid(at::cat(parts, 1));
  }
}

OpenSegment SegmentMemories::still_open(const core::SegmentRows& rows, const OpenSegment& open,
                                        const core::State& state, bool starts) const {
  const auto options = rows.rows.options().requires_grad(false);
  const int64_t batch = rows.rows.size(0), count = rows.rows.size(1);
  const at::Tensor real = rows.valid.defined() ? rows.valid : at::ones({batch, count}, options.dtype(at::kBool));
  OpenSegment now;
  now.valid.clear();
  for (size_t view = 0; view < views_.size(); ++view) {
    const auto* context = context_in(view);
    if (!starts) {
      now.valid.push_back(core::append_rows(open.valid[view], real, 1));
    } else {
      now.valid.push_back(context == nullptr ? real
                                             : at::cat({context->memory->valid(state.child(context->name)), real}, 1));
    }
  }
  now.length = starts ? at::full({batch}, count, options.dtype(at::kLong)) : open.length + count;
  now.read_rows = starts ? at::full({batch}, rows.tables[0].row_length(SpanKind::read), options.dtype(at::kLong))
                         : open.read_rows;
  return now;
}

core::SegmentRows SegmentMemories::enter(const at::Tensor& tokens, const at::Tensor& cls, const core::Segment& segment,
                                         const core::State& state) const {
  require_state(state);
  const core::State open_state = state.child("open");
  const OpenSegment& open = open_state.as<OpenSegment>();
  base::require(!segment.part.starts || !open.length.defined(),
                "[model] a segment is open in the state; expected part.starts = false");
  core::SegmentRows rows = start_rows(tokens, cls, segment, state, open);
  for (const auto& [name, memory] : sequences_) memory->enter(rows, state.child(name), segment.part);
  set_valid(rows, state, open, segment.part.starts);
  return rows;
}

void SegmentMemories::show(core::BackboneInput& input, const core::SegmentRows& rows, const core::Segment& segment,
                           const core::State& state) const {
  input.rows = rows.rows;
  input.valid = rows.valid;
  if (!segment.part.starts) input.first_row = state.child("open").as<OpenSegment>().length;
  for (const size_t view : view_of_) input.tables.push_back(&rows.tables[view]);
  if (!segment.part.starts || contexts_.empty()) return;
  input.context = [this, &state](int64_t layer, const at::Tensor& entering) {
    if (context_of(layer) < 0) return at::Tensor();
    const auto& [name, memory] = contexts_[static_cast<size_t>(context_of(layer))];
    return memory->before(layer, entering, state.child(name));
  };
}

core::State SegmentMemories::leave(const core::BackboneResult& result, const core::SegmentRows& rows,
                                   const core::Segment& segment, const core::State& state,
                                   std::vector<at::Tensor>& context_losses) const {
  core::State::Children children;
  for (size_t i = 0; i < contexts_.size(); ++i) {
    const auto& [name, memory] = contexts_[i];
    RECORD_USER_SCOPE(name);
    const auto view = static_cast<size_t>(std::find(views_.begin(), views_.end(), static_cast<int64_t>(i)) -
                                          views_.begin());
    core::ContextEnd after{
        memory->after(result.entering, rows.valid, rows.tables[view], state.child(name), segment.mode)};
    if (segment.part.ends) after = memory->end_segment(after.state, segment.mode);
    children.emplace_back(name, std::move(after.state));
    if (after.loss.defined()) {
      context_losses.resize(contexts_.size());
      context_losses[i] = std::move(after.loss);
    }
  }
  for (const auto& [name, memory] : sequences_) {
    children.emplace_back(name, memory->leave(result.hidden, rows.tables[0], state.child(name), segment.part));
  }
  children.emplace_back("layers", result.state);
  const core::State open = state.child("open");
  children.emplace_back("open", segment.part.ends
                                    ? closed_segment()
                                    : still_open(rows, open.as<OpenSegment>(), state, segment.part.starts));
  return core::State::list(std::move(children));
}

std::vector<LayerTable> SegmentMemories::attend_tables(const at::Tensor& tokens, const at::Tensor& cls,
                                                       const core::State& state, core::Mode mode) const {
  core::Segment segment;
  segment.mode = mode;
  core::SegmentRows rows = start_rows(tokens, cls, segment, state, OpenSegment{});
  for (const auto& [name, memory] : sequences_) memory->enter(rows, state.child(name), segment.part);
  std::vector<LayerTable> tables;
  for (core::AttendTable& table : rows.tables) tables.push_back({{}, std::move(table)});
  for (size_t layer = 0; layer < view_of_.size(); ++layer)
    tables[view_of_[layer]].layers.push_back(static_cast<int64_t>(layer));
  return tables;
}

}  // namespace mnemo::models
