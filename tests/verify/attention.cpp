#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include <optional>

#include "attention/bigbird.h"
#include "attention/linear.h"
#include "attention/lsh.h"
#include "attention/relative.h"
#include "base/error.h"
#include "base/option_poly.h"
#include "core/memory.h"
#include "memory/abc.h"
#include "models/registry.h"
#include "ops/attention/block_pattern.h"
#include "tests/verify/golden_file.h"

namespace mnemo::verify {
namespace {

/// Shape keys that golden files store next to an attention's own options.
struct Shape {
  int64_t dim = 0, num_heads = 1;
  std::optional<int64_t> head_dim;
  std::optional<bool> causal;
  template <class V>
  void visit(V&& v) {
    v("dim", dim, "model width", base::range(1, 1 << 12));
    v("num_heads", num_heads, "heads", base::range(1, 1 << 8));
    v("head_dim", head_dim, "head width; unset: dim / num_heads", base::range(1, 1 << 12));
    v("causal", causal, "no query attends to a later token");
  }
};

/// One attention module of a golden file, with its memory.
struct Subject {
  explicit Subject(const GoldenFile& file);

  layers::ParameterSet parameters;
  std::unique_ptr<core::Attention> attention;
  std::unique_ptr<core::LayerContext> context;
  bool causal = false, whole_memory_name = false;
};

void move(base::Node& from, base::Node& to, const char* key) {
  if (const base::Node* value = from.find(key)) {
    to.set(key, *value);
    from.erase(key);
  }
}

/// Replaces values that an attention of class A would draw at random by those of the file, which call them `name`.
template <class A>
void give_draw(const GoldenFile& file, const char* name, const base::Node& options, core::CoreAttention& core) {
  auto* takes = dynamic_cast<A*>(&core);
  if (takes == nullptr) return;
  if (const at::Tensor buffer = file.find(std::string("buffer.") + name); buffer.defined()) takes->set_draw(buffer);
  const at::Tensor blocks = file.step(0, std::string("input.") + name);
  if (!blocks.defined()) return;
  const at::Tensor pattern = file.step(0, "input.pattern_mask");
  base::require(!pattern.defined() ||
                    at::equal(pattern, ops::block_mask(blocks, options.at("block_size").as_int(), pattern.size(0))),
                "{}: step.0.input.pattern_mask does not match {}", file.path(), name);
  takes->set_draw(blocks);
}

Subject::Subject(const GoldenFile& file) : parameters(0, at::kDouble, file.budget()) {
  const auto& mechanisms = models::Mechanisms::all();
  const base::Node* given = file.config().find("attention");
  base::require(given != nullptr && given->is_table() && given->find("type") != nullptr,
                "{}: expected a table 'attention' with a 'type' in config", file.path());
  base::Node options = *given, shape_node = base::Node::table();
  for (const char* key : {"dim", "num_heads", "head_dim", "causal"}) move(options, shape_node, key);
  const Shape shape = base::read_options<Shape>(shape_node);
  base::require(shape.dim % shape.num_heads == 0 || shape.head_dim, "{}: dim {} is not a multiple of num_heads {}",
                file.path(), shape.dim, shape.num_heads);
  const std::string type = options.find("type")->as_string();
  causal = shape.causal.value_or(type == "relative");
  const layers::Scope root = parameters.root();
  // Files of relative attention name its projections attn.*, all others have no prefix.
  const layers::Scope scope = file.contains("param.attn.q.weight") ? root / "attn" : root;
  // The slots come from a layer below (LUNA); the lowest layer's initial slots are then neither in the file nor used.
  const bool above = file.contains("step.0.input.slots");
  layers::ParameterSet lowest(0, at::kDouble, file.budget());
  const core::AttentionBuild build{scope,
                                   root,
                                   above ? lowest.root() : root,
                                   shape.dim,
                                   shape.num_heads,
                                   shape.head_dim.value_or(shape.dim / shape.num_heads),
                                   causal,
                                   0.02,
                                   above ? 1 : 0};
  const base::TypedOptions whole = mechanisms.attention_types.read(options);
  auto core = mechanisms.attentions.find(type).make(whole, build);
  give_draw<attention::BigBird>(file, "block_mask", whole.table(), *core);
  give_draw<attention::Lsh>(file, "rotations", whole.table(), *core);
  give_draw<attention::Linear>(file, "feature.random", whole.table(), *core);
  const base::Node* memories = file.config().find("memory");
  base::require(memories == nullptr || (memories->is_array() && memories->size() <= 1),
                "{}: expected at most one memory for one attention", file.path());
  if (memories == nullptr || memories->size() == 0) {
    attention = std::move(core);
    return;
  }
  base::Node memory = memories->items()[0];
  base::require(memory.is_table() && memory.find("type") != nullptr && memory.find("type")->is_string(),
                "{}: expected a memory with a 'type'", file.path());
  const std::string memory_type = memory.find("type")->as_string();
  // Files of this type call the only tensor of the state "segment_cache".
  whole_memory_name = memory_type == "attention_cache";
  if (memory_type == "grc") {
    // In these files, a causal form without this key is the literal one, and qkv_bias applies to both branches.
    if (memory.find("bptt_depth") == nullptr) memory.set("bptt_depth", 0);
    if (const base::Node* bias = options.find("qkv_bias")) memory.set("qkv_bias", *bias);
  }
  const auto& entry = mechanisms.memories.find(memory_type);
  const base::TypedOptions complete = mechanisms.memory_types.read(memory);
  if (entry.wrap_attention) {
    attention = entry.wrap_attention(complete, build, std::move(core));
  } else {
    base::require(entry.layer_context != nullptr, "{}: '{}' needs a whole model, not one attention", file.path(),
                  memory_type);
    attention = std::move(core);
    context = entry.layer_context(complete, {root, 1, {0}, shape.dim, parameters.all().front().tensor});
  }
}

/// The table of one step; `cached` rows of a context are on the left.
core::AttendTable table_of(const GoldenFile& file, int64_t k, const Subject& subject, const core::State& context_state,
                           core::Mode mode) {
  using core::Rule;
  using core::SpanKind;
  const at::Tensor x = file.step(k, "input.x"), encoder = file.step(k, "input.encoder_output");
  const at::Tensor mask = file.step(k, "input.attend_mask");
  if (encoder.defined()) {
    auto table = core::AttendTable::cross({SpanKind::tokens, x.size(1)}, {SpanKind::tokens, encoder.size(1)});
    if (mask.defined()) table.set_valid(mask);
    return table;
  }
  core::AttendTable table({SpanKind::tokens, x.size(1)}, subject.causal ? Rule::causal() : Rule::all());
  if (subject.context) subject.context->add_spans(table, context_state, mode);
  const bool pattern = mask.defined() && mask.size(0) == x.size(1) && mask.size(1) == table.num_keys() &&
                       subject.context;
  if (pattern) {
    const int64_t cached = table.num_context();
    table.set_rule(SpanKind::tokens, SpanKind::cache, Rule::pattern(mask.narrow(1, 0, cached)));
    table.set_rule(SpanKind::tokens, SpanKind::tokens, Rule::pattern(mask.narrow(1, cached, x.size(1))));
  } else if (mask.defined()) {
    table.set_valid(mask);
  }
  return table;
}

core::State with_given(const core::State& state, const GoldenFile& file, const std::string& prefix, bool short_name) {
  return state.map([&](const core::Field& field, const at::Tensor& tensor) {
    const std::string name = short_name && field.path == "layers.0" ? "" : field.path;
    std::string full = prefix + name;
    if (full.ends_with('.')) full.pop_back();
    const at::Tensor given = file.find(full);
    if (!given.defined() && field.path == "valid" && file.under(prefix.substr(0, prefix.size() - 1)).size() > 0) {
      const auto rows = file.under(prefix.substr(0, prefix.size() - 1)).front().second;
      return at::ones({rows.size(0), rows.size(1)}, rows.options().dtype(at::kBool));
    }
    return given.defined() ? given.clone() : tensor;
  });
}

}  // namespace

GoldenReport verify_attention(const GoldenFile& file) {
  const Subject subject(file);
  file.load_parameters(subject.parameters);
  const core::Mode mode = file.training() ? core::Mode::train : core::Mode::evaluate;
  const int64_t steps = file.num_steps();
  const at::Tensor first = file.step(0, "input.x");
  base::require(first.defined() && first.dim() == 3, "{}: expected step.0.input.x [B,T,D]", file.path());
  GoldenComparison comparison(file);

  core::State state = with_given(subject.attention->initial_state(first.size(0)), file, "state.init.", false);
  state = state.map([&](const core::Field& field, const at::Tensor& tensor) {
    const at::Tensor buffer = file.find("buffer." + field.path);
    return buffer.defined() ? buffer.clone() : tensor;
  });
  std::vector<std::pair<std::string, at::Tensor>> leaves;
  for (const auto& [field, tensor] : state.fields()) {
    if (!file.contains("grad.state.init." + field.path)) continue;
    tensor.set_requires_grad(true);
    leaves.emplace_back("grad.state.init." + field.path, tensor);
  }
  core::State context_state;
  if (subject.context) {
    context_state = with_given(subject.context->initial_state(first.size(0)), file, "state.init.segment_cache.",
                               subject.whole_memory_name);
  }

  at::Tensor scalar = at::zeros({}, at::kDouble);
  for (int64_t k = 0; k < steps; ++k) {
    auto input_of = [&](const char* name) {
      at::Tensor tensor = file.step(k, std::string("input.") + name);
      if (!tensor.defined()) return tensor;
      tensor = tensor.clone().set_requires_grad(true);
      leaves.emplace_back(fmt::format("grad.step.{}.input.{}", k, name), tensor);
      return tensor;
    };
    const at::Tensor x = input_of("x"), encoder = input_of("encoder_output"), slots_below = input_of("slots");
    base::require(x.defined() && x.dim() == 3, "{}: expected step.{}.input.x [B,T,D]", file.path(), k);
    if (const at::Tensor reset = file.step(k, "input.reset_rows"); reset.defined()) {
      state = core::reset_rows(state, reset, subject.attention->initial_state(x.size(0)));
    }
    const core::AttendTable table = table_of(file, k, subject, context_state, mode);
    at::Tensor context = encoder;
    if (subject.context) context = subject.context->before(0, x, context_state);
    const core::AttentionInput input{x, context, table, mode, true, slots_below};
    const at::Tensor slot_index = file.step(k, "input.slot_index");
    const auto* assigned = dynamic_cast<const memory::Abc*>(subject.attention.get());
    base::require(!slot_index.defined() || assigned != nullptr,
                  "{}: step.{}.input.slot_index is there, but this attention has no slots", file.path(), k);
    const core::State given = state;
    auto [y, next, slots] = slot_index.defined() ? assigned->forward_assigned(input, state, slot_index)
                                                 : subject.attention->forward(input, state);
    state = next;
    if (subject.context) context_state = subject.context->after({x}, {}, table, context_state, mode);

    for (const auto& [name, found] : {std::pair("x", y), std::pair("y", y), std::pair("slots", slots)}) {
      const at::Tensor expected = file.step(k, std::string("output.") + name);
      if (!expected.defined()) continue;
      base::require(found.defined(), "{}: step.{}.output.{} is in the file, but this attention does not return it",
                    file.path(), k, name);
      comparison.compare("outputs", fmt::format("step.{}.output.{}", k, name), expected, found);
      const at::Tensor cotangent = file.step(k, std::string("cotangent.") + name);
      if (cotangent.defined()) scalar = scalar + (cotangent * found).sum();
    }
    if (const auto* relative = dynamic_cast<const attention::Relative*>(subject.attention.get())) {
      const std::string name = fmt::format("step.{}.output.scores", k);
      if (const at::Tensor expected = file.find(name); expected.defined())
        comparison.compare("outputs", name, expected, relative->scores(input, given));
    }
    for (const auto& [field, tensor] : state.fields()) {
      for (const char* what : {"state", "buffer"}) {
        const std::string name = fmt::format("step.{}.{}.{}", k, what, field.path);
        if (const at::Tensor expected = file.find(name); expected.defined()) {
          comparison.compare(std::string(what) + "s", name, expected, tensor);
        }
      }
    }
    for (const auto& [field, tensor] : context_state.fields()) {
      const std::string name = fmt::format("step.{}.state.segment_cache{}", k,
                                           subject.whole_memory_name ? "" : "." + field.path);
      if (subject.whole_memory_name && field.path == "valid") continue;
      if (const at::Tensor expected = file.find(name); expected.defined()) {
        comparison.compare("states", name, expected, tensor);
      }
    }
  }
  if (scalar.requires_grad()) torch::autograd::backward({scalar}, {}, /*retain_graph=*/false);
  for (const auto& [name, tensor] : leaves) {
    if (const at::Tensor expected = file.find(name); expected.defined()) {
      comparison.compare("gradients of inputs", name, expected, tensor.grad());
    }
  }
  for (const auto& parameter : subject.parameters.all()) {
    const std::string name = "grad.param." + parameter.name;
    if (const at::Tensor expected = file.find(name); expected.defined()) {
      comparison.compare("gradients of parameters", name, expected, parameter.tensor.grad());
    }
  }
  return comparison.take();
}

}  // namespace mnemo::verify
