// mnemo.Model, mnemo.nn.LayerStack and mnemo.nn.Attention as functions (input, state) -> (output, state'), and State.
#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "api/attention_layer.h"
#include "base/error.h"
#include "base/ignore_target.h"
#include "binding.h"
#include "core/state.h"
#include "layers/given_parameters.h"
#include "model.h"
#include "models/presets.h"
#include "weights/safetensors.h"

namespace mnemo::python {
namespace {

using namespace py::literals;

// ---- States

/// A state outside its model: named tensors with their dimensions.
struct LooseState {
  using Names = std::vector<std::pair<std::string, std::string>>;  ///< path, dims
  std::shared_ptr<const Names> names;
  std::vector<at::Tensor> tensors;
  template <class F>
  void visit(F&& f) {
    for (size_t i = 0; i < tensors.size(); ++i) f((*names)[i].first, tensors[i], (*names)[i].second);
  }
};

/// A state, and whether it is in the form of the module that made it. Any other module reads it by name.
struct StateHandle {
  core::State state;
  const void* maker = nullptr;

  StateHandle with(core::State other) const { return {std::move(other), maker}; }
};

StateHandle loose_state(const std::vector<std::tuple<std::string, std::string, at::Tensor>>& fields) {
  LooseState::Names names;
  std::vector<at::Tensor> tensors;
  for (const auto& [path, dims, tensor] : fields) {
    base::require(tensor.defined(), "state: '{}' is no tensor", path);
    const core::Field field{path, dims};
    const int64_t rank = static_cast<int64_t>(std::count(dims.begin(), dims.end(), ' ')) + 1;
    base::require(rank == tensor.dim(), "state: '{}' has the dims \"{}\", found a tensor [{}]", path, dims,
                  fmt::join(tensor.sizes(), ","));
    names.emplace_back(path, dims);
    tensors.push_back(tensor);
  }
  return {LooseState{std::make_shared<const LooseState::Names>(std::move(names)), std::move(tensors)}};
}

/// Number of sequences, or -1 for a state without any.
int64_t batch_of(const core::State& state) {
  for (const auto& [field, tensor] : state.fields())
    if (field.per_sequence()) return tensor.size(field.dim("B"));
  return -1;
}

at::Tensor rows_of(const StateHandle& handle, const at::Tensor& rows) {
  const int64_t batch = batch_of(handle.state);
  base::require(rows.dim() == 1 && rows.scalar_type() == at::kLong, "select_batch: expected row numbers [n] of int64");
  base::require(
      rows.numel() == 0 || batch < 0 || (rows.min().item<int64_t>() >= 0 && rows.max().item<int64_t>() < batch),
      "select_batch: expected rows from 0 to {}", batch - 1);
  return rows;
}

StateHandle reset_rows(const StateHandle& handle, const at::Tensor& rows, const StateHandle& initial) {
  const int64_t batch = batch_of(handle.state);
  base::require(rows.dim() == 1 && rows.scalar_type() == at::kBool && (batch < 0 || rows.size(0) == batch),
                "reset_rows: expected bool [{}], one for each sequence, found [{}] of {}", batch,
                fmt::join(rows.sizes(), ","), c10::toString(rows.scalar_type()));
  const int64_t fresh = batch_of(initial.state);
  base::require(fresh == batch, "reset_rows: expected an initial state of {} sequences, found {}", batch, fresh);
  return handle.with(core::reset_rows(handle.state, rows, initial.state));
}

StateHandle concat(const std::vector<StateHandle>& states) {
  base::require(!states.empty(), "concat: expected at least one state");
  std::vector<core::State> all;
  bool same = true;
  for (const StateHandle& one : states) {
    all.push_back(one.state);
    same = same && one.maker == states.front().maker;
  }
  return {core::concat_batch(all), same ? states.front().maker : nullptr};
}

constexpr const char* kDims = "dims.";  ///< metadata of a state's file: dims.PATH

void save_state(const StateHandle& handle, const std::string& path) {
  weights::Metadata dims;
  for (const auto& [field, tensor] : handle.state.fields()) dims[kDims + field.path] = std::string(field.dims);
  weights::write_safetensors(path, core::save(handle.state), dims);
}

StateHandle load_state(const std::string& path) {
  const weights::TensorFile file = weights::read_safetensors(path);
  std::vector<std::tuple<std::string, std::string, at::Tensor>> fields;
  for (const auto& [name, tensor] : file.tensors) {
    const auto dims = file.metadata.find(kDims + name);
    base::require(dims != file.metadata.end(), "{}: expected a file of State.save, found no dims of '{}'", path, name);
    fields.emplace_back(name, dims->second, tensor);
  }
  return loose_state(fields);
}

py::list fields_of(const StateHandle& handle) {
  py::list list;
  for (const auto& [field, tensor] : handle.state.fields())
    list.append(py::make_tuple(field.path, std::string(field.dims), tensor));
  return list;
}

/// The result names no maker, so that a module checks it before it is read: its type may be another.
StateHandle to_type(const StateHandle& handle, at::ScalarType type) { return {core::to(handle.state, type, at::kCPU)}; }

void add_state(py::module_& m) {
  py::class_<StateHandle>(m, "State")
      .def(py::init(&loose_state))
      .def("fields", fields_of)
      .def("batch", [](const StateHandle& h) { return batch_of(h.state); })
      .def("detach", [](const StateHandle& h) { return h.with(core::detach(h.state)); })
      .def("clone", [](const StateHandle& h) { return h.with(core::clone(h.state)); })
      .def("to", to_type)
      .def("select_batch", [](const StateHandle& h,
                              const at::Tensor& rows) { return h.with(core::select_batch(h.state, rows_of(h, rows))); })
      .def("reset_rows", reset_rows)
      .def("num_bytes", [](const StateHandle& h) { return core::num_bytes(h.state); })
      .def("save", save_state);
  m.def("concat_states", concat);
  m.def("load_state", load_state);
}

/// The state in the form of a module. `initial`: makes its initial state for a number of sequences.
template <class Initial>
core::State state_for(const void* module, const std::optional<StateHandle>& given, int64_t batch, Initial&& initial) {
  if (!given) return initial(batch);
  const int64_t found = batch_of(given->state);
  if (found >= 0 && found != batch)
    throw base::ShapeError(
        fmt::format("expected a state of {} sequences, as many as the input's, found {}", batch, found));
  if (given->maker == module) return given->state;
  const auto fields = given->state.fields();
  const core::State fresh = initial(batch);
  for (const auto& [field, tensor] : fields) {
    bool known = false;
    fresh.map_declared([&, &path = field.path](const core::Field& own, const at::Tensor& own_tensor) {
      known = known || own.path == path;
      return own_tensor;
    });
    base::require(known, "the state is of another model: it has '{}', which this one lacks", field.path);
  }
  return core::load(fresh, [&](const std::string& path) {
    for (const auto& [field, tensor] : fields)
      if (field.path == path) return tensor;
    return at::Tensor();
  });
}

// ---- Modules

core::Mode mode_of(bool training) { return training ? core::Mode::train : core::Mode::evaluate; }

/// Throws unless the tensor is what the module reads: of `rank` dimensions, on its device.
void require_input(const char* name, const at::Tensor& tensor, int64_t rank, const char* expected, at::Device device) {
  if (tensor.dim() != rank) {
    throw base::ShapeError(fmt::format("expected {} {}, found [{}]", name, expected, fmt::join(tensor.sizes(), ",")));
  }
  base::require(tensor.device() == device, "expected {} on {}, where the model is, found it on {}", name, device.str(),
                tensor.device().str());
  base::require(tensor.numel() > 0, "expected {} {} with at least one element, found [{}]", name, expected,
                fmt::join(tensor.sizes(), ","));
}

void require_tokens(const char* name, const at::Tensor& tokens, int64_t vocab_size, at::Device device) {
  require_input(name, tokens, 2, "[B,T]", device);
  TORCH_CHECK_TYPE(at::isIntegralType(tokens.scalar_type(), false), "expected ", name, " of int64, found ",
                   tokens.scalar_type());
  const int64_t low = tokens.min().item<int64_t>(), high = tokens.max().item<int64_t>();
  base::require(low >= 0 && high < vocab_size, "expected {} from 0 to {}, found {}", name, vocab_size - 1,
                low < 0 ? low : high);
}

void require_mask(const char* name, const at::Tensor& mask, const at::Tensor& of) {
  if (!mask.defined()) return;
  TORCH_CHECK_TYPE(mask.scalar_type() == at::kBool, "expected ", name, " of bool, found ", mask.scalar_type());
  if (mask.dim() != 2 || mask.size(0) != of.size(0) || mask.size(1) != of.size(1)) {
    throw base::ShapeError(
        fmt::format("expected {} [{},{}], found [{}]", name, of.size(0), of.size(1), fmt::join(mask.sizes(), ",")));
  }
  base::require(mask.device() == of.device(), "expected {} on {}, found it on {}", name, of.device().str(),
                mask.device().str());
}

/// Throws TypeError for rows of another type than the weights, unless autocast converts them.
void require_rows_type(const char* name, const at::Tensor& rows, const core::Model& model) {
  const auto& all = model.parameters().all();
  TORCH_CHECK_TYPE(all.empty() || rows.scalar_type() == all.front().tensor.scalar_type() ||
                       (rows.is_floating_point() && at::autocast::is_autocast_enabled(rows.device().type())),
                   "expected ", name, " of ", all.empty() ? at::kFloat : all.front().tensor.scalar_type(), ", found ",
                   rows.scalar_type());
}

struct ModelCall {
  at::Tensor input;
  std::optional<StateHandle> state;
  at::Tensor valid, token_types, source, source_valid;
  bool training = false, starts = true, ends = true;
};

core::Segment segment_of(const models::Model& model, const ModelCall& call) {
  const at::Device device = core::device_of(model);
  base::require(!call.source.defined() || core::kind_of(model.input()) == core::InputKind::pairs,
                "source: expected a translation model");
  base::require(!call.source_valid.defined() || call.source.defined(), "source_valid: expected source beside it");
  core::Segment segment;
  segment.mode = mode_of(call.training);
  segment.part = {call.starts, call.ends};
  const bool stack = model.options().kind == models::ModelOptions::Kind::layer_stack;
  if (stack) {
    require_input("rows", call.input, 3, "[B,T,D]", device);
    require_rows_type("rows", call.input, model);
    if (const auto dim = model.options().backbone.dim(); dim && call.input.size(2) != *dim) {
      throw base::ShapeError(
          fmt::format("expected rows [B,T,{}], found [{}]", *dim, fmt::join(call.input.sizes(), ",")));
    }
    segment.rows = call.input;
  } else if (core::kind_of(model.input()) == core::InputKind::images) {
    require_input("pixels", call.input, 4, "[B,C,H,W]", device);
    require_rows_type("pixels", call.input, model);
    base::require(!call.valid.defined(), "valid: expected a model of tokens; images have no padding");
    segment.pixels = call.input;
  } else {
    const bool pairs = core::kind_of(model.input()) == core::InputKind::pairs;
    require_tokens(
        "tokens", call.input,
        pairs ? core::pair_input(model.input()).target_vocab_size : core::token_input(model.input()).vocab_size,
        device);
    segment.tokens = call.input.to(at::kLong);
    if (pairs && call.source.defined()) {
      require_tokens("source", call.source, core::pair_input(model.input()).source_vocab_size, device);
      base::require(call.source.size(0) == call.input.size(0), "expected source [{},S], found [{}]", call.input.size(0),
                    fmt::join(call.source.sizes(), ","));
      require_mask("source_valid", call.source_valid, call.source);
      segment.source = call.source.to(at::kLong);
      segment.source_valid = call.source_valid;
    }
  }
  if (call.token_types.defined()) {
    require_tokens("token_types", call.token_types, int64_t{1} << 31, device);
    segment.token_types = call.token_types.to(at::kLong);
  }
  if (segment.pixels.defined()) return segment;
  require_mask("valid", call.valid, call.input);
  segment.valid = call.valid;
  return segment;
}

/// (hidden, state, {name: auxiliary loss}).
py::tuple forward(const ModelHandle& handle, const ModelCall& call) {
  const models::Model& model = handle.model();
  core::StepResult step;
  std::vector<core::AuxiliaryLoss> losses;
  {
    const py::gil_scoped_release release;
    const core::Segment segment = segment_of(model, call);
    const core::State state = state_for(&model, call.state, call.input.size(0),
                                        [&](int64_t batch) { return model.initial_state(batch); });
    step = model.forward(segment, state);
    if (call.training) losses = model.auxiliary_losses(step);
  }
  py::dict auxiliary;
  for (const core::AuxiliaryLoss& loss : losses)
    auxiliary[text_of(loss.name)] = py::make_tuple(loss.values, loss.weight);
  return py::make_tuple(step.hidden, StateHandle{step.state, &model}, auxiliary);
}

/// Throws unless a head can read the rows [B,T,D].
void require_hidden(const models::Model& model, const at::Tensor& hidden) {
  base::require(model.head_or_null() != nullptr, "a layer_stack has no head: expected a whole model");
  require_input("hidden", hidden, 3, "[B,T,D]", core::device_of(model));
  require_rows_type("hidden", hidden, model);
  if (const auto dim = model.options().backbone.dim(); dim && hidden.size(2) != *dim) {
    throw base::ShapeError(fmt::format("expected hidden [B,T,{}], found [{}]", *dim, fmt::join(hidden.sizes(), ",")));
  }
}

/// Number of targets that the head knows.
int64_t num_targets(const models::Model& model) {
  if (const int64_t classes = model.num_classes(); classes > 0) return classes;
  return core::kind_of(model.input()) == core::InputKind::pairs ? core::pair_input(model.input()).target_vocab_size
                                                                : core::token_input(model.input()).vocab_size;
}

at::Tensor logits(const ModelHandle& handle, const at::Tensor& hidden) {
  const py::gil_scoped_release release;
  require_hidden(handle.model(), hidden);
  return handle.model().logits(hidden);
}

at::Tensor nll(const ModelHandle& handle, const at::Tensor& hidden, const at::Tensor& targets) {
  const py::gil_scoped_release release;
  const models::Model& model = handle.model();
  require_hidden(model, hidden);
  require_input("targets", targets, 2, "[B,T]", hidden.device());
  TORCH_CHECK_TYPE(targets.scalar_type() == at::kLong, "expected targets of int64, found ", targets.scalar_type());
  if (targets.size(0) != hidden.size(0) || targets.size(1) != hidden.size(1)) {
    throw base::ShapeError(fmt::format("expected targets [{},{}], one for each row of hidden, found [{}]",
                                       hidden.size(0), hidden.size(1), fmt::join(targets.sizes(), ",")));
  }
  const at::Tensor counted = at::where(targets == base::kIgnoreTarget, at::zeros_like(targets), targets);
  const int64_t low = counted.min().item<int64_t>(), high = counted.max().item<int64_t>(), most = num_targets(model);
  base::require(low >= 0 && high < most, "expected targets from 0 to {}, or mnemo.IGNORE, found {}", most - 1,
                low < 0 ? low : high);
  return model.nll(hidden, targets);
}

using Given = std::map<std::string, at::Tensor>;

/// A model of its own, without a folder.
ModelHandle build_stack(const base::Node& options, uint64_t seed, const Given& given) {
  const layers::GivenParameters parameters(given);
  auto parts = std::make_shared<bundle::Bundle>();
  parts->model = models::build(models::read_model_options(options), seed);
  return {Bundle(std::move(parts))};
}

/// A copy of a model around other weights.
ModelHandle rebuilt(const ModelHandle& handle, const Given& given) {
  auto parts = std::make_shared<bundle::Bundle>(handle.parts());
  const models::Model& old = handle.model();
  {
    const layers::GivenParameters parameters(given);
    parts->model = models::build(old.options(), 0);
  }
  const at::NoGradGuard no_grad;
  parts->model->commit(old.initial_state(1));
  return {Bundle(std::move(parts))};
}

void commit(ModelHandle& handle, const StateHandle& state) {
  const int64_t batch = std::max<int64_t>(batch_of(state.state), 1);
  models::Model& model = handle.model();
  model.commit(state_for(&model, state, batch, [&](int64_t n) { return model.initial_state(n); }));
}

StateHandle initial_state(const ModelHandle& handle, int64_t batch) {
  base::require(batch >= 1 && batch <= (int64_t{1} << 20), "initial_state: expected 1 to {} sequences, found {}",
                int64_t{1} << 20, batch);
  return {handle.model().initial_state(batch), &handle.model()};
}

// ---- One attention

AttentionLayerOptions attention_options(const py::object& attention, const py::list& memory, int64_t dim,
                                        int64_t num_heads, bool causal, uint64_t seed) {
  AttentionLayerOptions options{
      .attention = node_of(attention), .dim = dim, .num_heads = num_heads, .causal = causal, .seed = seed};
  for (const py::handle& one : memory) options.memory.push_back(node_of(one));
  return options;
}

using AttentionHandle = std::shared_ptr<AttentionLayer>;

py::tuple attend(const AttentionLayer& layer, const at::Tensor& x, const std::optional<StateHandle>& given,
                 const std::optional<at::Tensor>& valid, bool training) {
  core::AttentionResult result;
  {
    const py::gil_scoped_release release;
    const at::Tensor& weight = layer.parameters().all().front().tensor;
    require_input("x", x, 3, "[B,T,D]", weight.device());
    TORCH_CHECK_TYPE(x.scalar_type() == weight.scalar_type() ||
                         (x.is_floating_point() && at::autocast::is_autocast_enabled(x.device().type())),
                     "expected x of ", weight.scalar_type(), ", found ", x.scalar_type());
    const at::Tensor mask = valid.value_or(at::Tensor());
    require_mask("valid", mask, x);
    const core::State state = state_for(&layer, given, x.size(0),
                                        [&](int64_t batch) { return layer.initial_state(batch); });
    result = layer.forward(x, state, mode_of(training), mask);
  }
  return py::make_tuple(result.y, StateHandle{result.state, &layer});
}

void add_attention(py::module_& m) {
  py::class_<AttentionLayer, AttentionHandle>(m, "Attention")
      .def(py::init([](const py::object& attention, const py::list& memory, int64_t dim, int64_t num_heads, bool causal,
                       uint64_t seed, const Given& given) {
        const AttentionLayerOptions options = attention_options(attention, memory, dim, num_heads, causal, seed);
        const layers::GivenParameters parameters(given);
        return std::make_shared<AttentionLayer>(options);
      }))
      .def("parameters", [](const AttentionLayer& layer) { return layer.parameters().named(); })
      .def("initial_state",
           [](const AttentionLayer& layer, int64_t batch) {
             base::require(batch >= 1 && batch <= (int64_t{1} << 20),
                           "initial_state: expected 1 to {} sequences, found {}", int64_t{1} << 20, batch);
             return StateHandle{layer.initial_state(batch), &layer};
           })
      .def("forward", attend);
}

}  // namespace

void add_modules(py::module_& m) {
  add_state(m);
  add_attention(m);
  m.def("build_stack", [](const py::dict& options, uint64_t seed, const Given& given) {
    return build_stack(node_of(options), seed, given);
  });
  auto model = m.attr("Model").cast<py::class_<ModelHandle>>();
  model.def("parameters", [](const ModelHandle& h) { return h.model().parameters().named(); })
      .def("rebuilt", rebuilt)
      .def("commit", commit)
      .def("initial_state", initial_state)
      .def("has_head", [](const ModelHandle& h) { return h.model().head_or_null() != nullptr; })
      .def("options", [](const ModelHandle& h) { return object_of(base::write_options(h.model().options())); })
      .def("forward",
           [](const ModelHandle& h, const at::Tensor& input, const std::optional<StateHandle>& state,
              const std::optional<at::Tensor>& valid, const std::optional<at::Tensor>& token_types,
              const std::optional<at::Tensor>& source, const std::optional<at::Tensor>& source_valid, bool training,
              bool starts, bool ends) {
             const auto given = [](const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); };
             return forward(h, {input, state, given(valid), given(token_types), given(source), given(source_valid),
                                training, starts, ends});
           })
      .def("logits", logits)
      .def("nll", nll);
}

}  // namespace mnemo::python
