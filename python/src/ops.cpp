// mnemo.ops: operators of LibTorch's dispatcher, the only part of Mnemo that torch.compile(fullgraph=True) takes.
//
// An operator is a row of kOperators. From it come its schema, its kernels for CPU and Meta, the operator NAME_backward
// and the autograd kernel, all boxed, so that none of them is written twice.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"
#include "ops/grc/grc.h"

namespace mnemo::python {
namespace {

using Tensors = std::vector<at::Tensor>;
using Values = c10::ArrayRef<c10::IValue>;
using Sizes = std::vector<c10::SymInt>;

struct Operator {
  const char* name;
  const char* tensors;  ///< the first arguments of the schema: "Tensor q, Tensor? valid"
  const char* values;   ///< those after them: "str activation, float eps"
  size_t outputs;
  /// Absent tensors are undefined. Results are new tensors, laid out as `shapes` says.
  Tensors (*run)(const Tensors&, Values);
  /// Checks the arguments, without their data, and makes empty results. Throws ValueError or TypeError.
  Tensors (*shapes)(const Tensors&, Values);

  size_t num_tensors() const {
    size_t count = 1;
    for (const char* c = tensors; *c != '\0'; ++c) count += *c == ',';
    return count;
  }
};

// ---- Checks

/// Throws ValueError unless the tensor has those sizes; -1 stands for any.
void require_sizes(const char* who, const char* name, const at::Tensor& tensor, const Sizes& sizes,
                   const char* expected) {
  bool fits = tensor.dim() == static_cast<int64_t>(sizes.size());
  for (size_t i = 0; fits && i < sizes.size(); ++i)
    fits = sizes[i] == -1 || tensor.sym_size(static_cast<int64_t>(i)) == sizes[i];
  TORCH_CHECK_VALUE(fits, "mnemo.ops.", who, ": expected ", name, " ", expected, ", found ", tensor.sym_sizes());
}

/// Throws TypeError unless the numbers are all of one type that the kernels have, and what is left is bool; ValueError
/// unless all are on one device.
void require_types(const char* who, const Tensors& tensors) {
  const at::ScalarType type = tensors.front().scalar_type();
  TORCH_CHECK_TYPE(type == at::kFloat || type == at::kDouble || type == at::kBFloat16, "mnemo.ops.", who,
                   ": expected float32, float64 or bfloat16, found ", type);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    TORCH_CHECK_VALUE(tensor.device() == tensors.front().device(), "mnemo.ops.", who, ": expected all tensors on ",
                      tensors.front().device(), ", found ", tensor.device());
    TORCH_CHECK_TYPE(tensor.scalar_type() == type || tensor.scalar_type() == at::kBool, "mnemo.ops.", who,
                     ": expected all tensors of ", type, " (masks of bool), found ", tensor.scalar_type());
  }
}

void require_masks(const char* who, const Tensors& tensors, std::initializer_list<size_t> places) {
  for (const size_t i : places) {
    TORCH_CHECK_TYPE(!tensors[i].defined() || tensors[i].scalar_type() == at::kBool, "mnemo.ops.", who,
                     ": expected masks of bool, found ", tensors[i].scalar_type());
  }
}

at::Tensor empty(const at::Tensor& like, const Sizes& sizes) {
  return at::empty_symint(sizes, like.options().requires_grad(false));
}

/// Heads [B,H,T,d] whose memory is [B,T,H,d].
at::Tensor empty_heads(const at::Tensor& like, const Sizes& s) {
  return empty(like, {s[0], s[2], s[1], s[3]}).transpose(1, 2);
}

at::Tensor as_heads(const at::Tensor& heads) { return heads.transpose(1, 2).contiguous().transpose(1, 2); }

/// A contiguous tensor that shares nothing with the arguments.
at::Tensor fresh(const at::Tensor& tensor, const Tensors& arguments) {
  const at::Tensor result = tensor.contiguous();
  for (const at::Tensor& argument : arguments) {
    if (argument.defined() && result.is_alias_of(argument)) return result.clone();
  }
  return result;
}

// ---- The operators

ops::AbcActivation activation_of(const c10::IValue& name) {
  const std::string_view text = name.toStringView();
  TORCH_CHECK_VALUE(text == "exp" || text == "relu" || text == "sigmoid",
                    "mnemo.ops: expected activation \"exp\", \"relu\" or \"sigmoid\", found \"", text, "\"");
  return text == "exp"    ? ops::AbcActivation::exp
         : text == "relu" ? ops::AbcActivation::relu
                          : ops::AbcActivation::sigmoid;
}

Tensors abc_causal_shapes(const Tensors& t, Values values) {
  activation_of(values[0]);
  require_types("abc_causal", t);
  require_masks("abc_causal", t, {7});
  require_sizes("abc_causal", "q", t[0], {-1, -1, -1, -1}, "[B,H,T,d]");
  require_sizes("abc_causal", "v", t[2], {-1, -1, -1, -1}, "[B,H,T,dv]");
  require_sizes("abc_causal", "s", t[3], {-1, -1, -1, -1}, "[B,H,T,n]");
  const auto b = t[0].sym_size(0), h = t[0].sym_size(1), time = t[0].sym_size(2), d = t[0].sym_size(3),
             dv = t[2].sym_size(3), n = t[3].sym_size(3);
  TORCH_CHECK_VALUE(time > 0, "mnemo.ops.abc_causal: expected at least one token, found none");
  TORCH_CHECK_VALUE(n > 0, "mnemo.ops.abc_causal: expected at least one slot, found none");
  require_sizes("abc_causal", "k", t[1], {b, h, time, d}, "[B,H,T,d] as q");
  require_sizes("abc_causal", "v", t[2], {b, h, time, dv}, "[B,H,T,dv]");
  require_sizes("abc_causal", "s", t[3], {b, h, time, n}, "[B,H,T,n]");
  require_sizes("abc_causal", "memory k", t[4], {b, h, n, d}, "[B,H,n,d]");
  require_sizes("abc_causal", "memory v", t[5], {b, h, n, dv}, "[B,H,n,dv]");
  require_sizes("abc_causal", "memory z", t[6], {b, h, n}, "[B,H,n]");
  if (t[7].defined()) require_sizes("abc_causal", "valid", t[7], {b, time}, "[B,T]");
  return {empty_heads(t[0], {b, h, time, dv}), empty(t[0], {b, h, n, d}), empty(t[0], {b, h, n, dv}),
          empty(t[0], {b, h, n})};
}

Tensors abc_causal(const Tensors& t, Values values) {
  const ops::AbcOutput out = ops::abc_causal(t[0], t[1], t[2], t[3], {t[4], t[5], t[6]}, t[7], activation_of(values[0]),
                                             values[1].toDouble(), values[2].toDouble());
  return {as_heads(out.o), fresh(out.memory.k, t), fresh(out.memory.v, t), fresh(out.memory.z, t)};
}

Tensors abc_shapes(const Tensors& t, Values values) {
  activation_of(values[0]);
  require_types("abc", t);
  require_masks("abc", t, {4});
  require_sizes("abc", "q", t[0], {-1, -1, -1, -1}, "[B,H,T,d]");
  require_sizes("abc", "v", t[2], {-1, -1, -1, -1}, "[B,H,S,dv]");
  require_sizes("abc", "s", t[3], {-1, -1, -1, -1}, "[B,H,S,n]");
  const auto b = t[0].sym_size(0), h = t[0].sym_size(1), d = t[0].sym_size(3), rows = t[2].sym_size(2),
             dv = t[2].sym_size(3), n = t[3].sym_size(3);
  TORCH_CHECK_VALUE(n > 0, "mnemo.ops.abc: expected at least one slot, found none");
  require_sizes("abc", "k", t[1], {b, h, rows, d}, "[B,H,S,d]");
  require_sizes("abc", "v", t[2], {b, h, rows, dv}, "[B,H,S,dv]");
  require_sizes("abc", "s", t[3], {b, h, rows, n}, "[B,H,S,n]");
  if (t[4].defined()) require_sizes("abc", "valid", t[4], {b, rows}, "[B,S]");
  return {empty(t[0], {b, h, t[0].sym_size(2), dv}), empty(t[0], {b, h, n, d}), empty(t[0], {b, h, n, dv})};
}

Tensors abc(const Tensors& t, Values values) {
  const ops::AbcSumsOutput out = ops::abc_full(t[0], t[1], t[2], t[3], t[4], activation_of(values[0]),
                                               values[1].toDouble(), values[2].toDouble());
  return {fresh(out.o, t), fresh(out.sums.k, t), fresh(out.sums.v, t)};
}

Tensors attention_shapes(const Tensors& t, Values values) {
  require_types("attention", t);
  require_masks("attention", t, {3, 4});
  require_sizes("attention", "q", t[0], {-1, -1, -1, -1}, "[B,H,Q,d]");
  require_sizes("attention", "k", t[1], {-1, -1, -1, -1}, "[B,H,K,d]");
  require_sizes("attention", "v", t[2], {-1, -1, -1, -1}, "[B,H,K,dv]");
  const auto b = t[0].sym_size(0), h = t[0].sym_size(1), queries = t[0].sym_size(2), keys = t[1].sym_size(2),
             dv = t[2].sym_size(3);
  require_sizes("attention", "k", t[1], {b, h, keys, t[0].sym_size(3)}, "[B,H,K,d]");
  require_sizes("attention", "v", t[2], {b, h, keys, dv}, "[B,H,K,dv]");
  if (t[3].defined()) require_sizes("attention", "mask", t[3], {queries, keys}, "[Q,K]");
  if (t[4].defined()) require_sizes("attention", "valid", t[4], {b, keys}, "[B,K]");
  TORCH_CHECK_VALUE(!values[0].toBool() || !t[3].defined(),
                    "mnemo.ops.attention: causal and mask exclude each other; put the causal rule into the mask");
  return {empty_heads(t[0], {b, h, queries, dv})};
}

Tensors attention(const Tensors& t, Values values) {
  const int64_t queries = t[0].size(2), keys = t[1].size(2);
  ops::KeyRanges ranges = t[3].defined()       ? ops::KeyRanges::from_mask(t[3])
                          : values[0].toBool() ? ops::KeyRanges::causal(queries, keys)
                                               : ops::KeyRanges::all(queries, keys);
  ranges.valid = t[4];
  return {as_heads(ops::attention(t[0], t[1], t[2], {}, ranges, values[1].toDouble()))};
}

Tensors grc_update_shapes(const Tensors& t, Values values) {
  require_types("grc_update", t);
  require_sizes("grc_update", "rows", t[1], {-1, -1, -1}, "[B,N,C]");
  const auto b = t[1].sym_size(0), n = t[1].sym_size(1), c = t[1].sym_size(2);
  TORCH_CHECK_VALUE(t[0].dim() == 3 && (t[0].sym_size(0) == b || t[0].sym_size(0) == 1),
                    "mnemo.ops.grc_update: expected cache [B,N,C] or [1,N,C], found ", t[0].sym_sizes());
  require_sizes("grc_update", "cache", t[0], {-1, n, c}, "[B,N,C] or [1,N,C]");
  for (const size_t gate : {2, 4, 6}) {
    require_sizes("grc_update", "the weight of a gate", t[gate], {c, c * 2}, "[C,2C]");
    if (t[gate + 1].defined()) require_sizes("grc_update", "the bias of a gate", t[gate + 1], {c}, "[C]");
  }
  const bool authors = values[0].toBool();
  TORCH_CHECK_VALUE(authors == t[8].defined() && authors == t[9].defined(),
                    "mnemo.ops.grc_update: norm_weight and norm_bias go with authors=True, and it needs them");
  for (const size_t norm : {8, 9})
    if (t[norm].defined()) require_sizes("grc_update", "the norm", t[norm], {c}, "[C]");
  return {empty(t[1], {b, n, c})};
}

Tensors grc_update(const Tensors& t, Values values) {
  const ops::GrcGates gates{t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]};
  return {fresh(ops::grc_step(t[0], t[1], gates, values[0].toBool()), t)};
}

Tensors grc_read_shapes(const Tensors& t, Values) {
  require_types("grc_read", t);
  require_sizes("grc_read", "q", t[0], {-1, -1, -1, -1}, "[B,H,T,c]");
  require_sizes("grc_read", "k", t[1], {-1, -1, -1, -1}, "[B,H,N,c]");
  require_sizes("grc_read", "o", t[3], {-1, -1, -1}, "[B,T,H*d]");
  const auto b = t[0].sym_size(0), h = t[0].sym_size(1), time = t[0].sym_size(2), c = t[0].sym_size(3),
             n = t[1].sym_size(2);
  require_sizes("grc_read", "k", t[1], {b, h, n, c}, "[B,H,N,c]");
  require_sizes("grc_read", "v", t[2], {b, h, n, c}, "[B,H,N,c] as k");
  require_sizes("grc_read", "o", t[3], {b, time, -1}, "[B,T,H*d]");
  require_sizes("grc_read", "lambda", t[4], {h}, "[H]");
  TORCH_CHECK_VALUE(h > 0, "mnemo.ops.grc_read: expected at least one head, found none");
  TORCH_CHECK_VALUE(t[3].sym_size(2) % h == 0 && t[3].sym_size(2) >= h * c,
                    "mnemo.ops.grc_read: expected o [B,T,H*d] with d of at least c, found ", t[3].sym_sizes());
  return {empty(t[3], {b, time, t[3].sym_size(2)})};
}

Tensors grc_read(const Tensors& t, Values values) {
  const at::Tensor heads = ops::attention(t[0], t[1], t[2], {}, ops::KeyRanges::all(t[0].size(2), t[1].size(2)),
                                          values[0].toDouble());
  return {fresh(ops::grc_mix(heads.transpose(1, 2).flatten(2), t[3], t[4]), t)};
}

constexpr Operator kOperators[] = {
    {"abc_causal",
     "Tensor q, Tensor k, Tensor v, Tensor s, Tensor memory_k, Tensor memory_v, Tensor memory_z, Tensor? valid",
     "str activation, float eps, float scale", 4, abc_causal, abc_causal_shapes},
    {"abc", "Tensor q, Tensor k, Tensor v, Tensor s, Tensor? valid", "str activation, float eps, float scale", 3, abc,
     abc_shapes},
    {"attention", "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? valid", "bool causal, float scale", 1, attention,
     attention_shapes},
    {"grc_update",
     "Tensor cache, Tensor rows, Tensor reset_weight, Tensor? reset_bias, Tensor update_weight, Tensor? update_bias, "
     "Tensor candidate_weight, Tensor? candidate_bias, Tensor? norm_weight, Tensor? norm_bias",
     "bool authors", 1, grc_update, grc_update_shapes},
    {"grc_read", "Tensor q, Tensor k, Tensor v, Tensor o, Tensor mixing", "float scale", 1, grc_read, grc_read_shapes},
};

// ---- Boxed kernels

constexpr const char* kBackward = "_backward";

const Operator& operator_of(const c10::OperatorHandle& handle) {
  const std::string& full = handle.schema().name();
  std::string_view name = std::string_view(full).substr(full.rfind(':') + 1);
  if (name.ends_with(kBackward)) name.remove_suffix(std::strlen(kBackward));
  for (const Operator& known : kOperators)
    if (name == known.name) return known;
  TORCH_INTERNAL_ASSERT(false, "no operator ", full);
}

struct Call {
  Tensors grads;  ///< of a backward operator
  Tensors tensors;
  std::vector<c10::IValue> values;
};

at::Tensor tensor_or_none(const c10::IValue& value) { return value.isNone() ? at::Tensor() : value.toTensor(); }

/// Takes the arguments off the stack.
Call take(const Operator& op, size_t num_grads, torch::jit::Stack& stack) {
  const size_t tensors = op.num_tensors(), count = stack.size();
  size_t values = 1;
  for (const char* c = op.values; *c != '\0'; ++c) values += *c == ',';
  auto next = stack.begin() + static_cast<std::ptrdiff_t>(count - num_grads - tensors - values);
  const auto first = next;
  Call call;
  for (size_t i = 0; i < num_grads; ++i) call.grads.push_back((next++)->toTensor());
  for (size_t i = 0; i < tensors; ++i) call.tensors.push_back(tensor_or_none(*next++));
  call.values.assign(next, stack.end());
  stack.erase(first, stack.end());
  return call;
}

void put(const Call& call, torch::jit::Stack& stack) {
  for (const at::Tensor& grad : call.grads) stack.emplace_back(grad);
  for (const at::Tensor& tensor : call.tensors)
    stack.emplace_back(tensor.defined() ? c10::IValue(tensor) : c10::IValue());
  for (const c10::IValue& value : call.values) stack.push_back(value);
}

Tensors called(const c10::OperatorHandle& handle, const Call& call) {
  torch::jit::Stack stack;
  put(call, stack);
  handle.callBoxed(&stack);
  Tensors out;
  for (c10::IValue& value : stack) out.push_back(std::move(value).toTensor());
  return out;
}

void return_all(Tensors results, torch::jit::Stack& stack) {
  for (at::Tensor& result : results) stack.emplace_back(std::move(result));
}

void cpu_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  const Call call = take(op, 0, *stack);
  op.shapes(call.tensors, call.values);
  return_all(op.run(call.tensors, call.values), *stack);
}

void meta_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  const Call call = take(op, 0, *stack);
  return_all(op.shapes(call.tensors, call.values), *stack);
}

bool has_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.is_floating_point(); }

/// In place of the gradient of an absent tensor or a mask.
at::Tensor no_gradient(const Call& call) { return at::empty({0}, call.grads.front().options()); }

/// Runs the operator again, with a graph, and differentiates it.
void cpu_backward_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  Call call = take(op, op.outputs, *stack);
  op.shapes(call.tensors, call.values);
  // A kernel runs below autograd; this graph is its own.
  const c10::impl::ForceDispatchKeyGuard from_the_top(c10::default_included_set, c10::default_excluded_set);
  const at::AutoGradMode with_graph(true);
  Tensors wanted;
  for (at::Tensor& tensor : call.tensors) {
    if (!has_gradient(tensor)) continue;
    tensor = tensor.detach().requires_grad_(true);
    wanted.push_back(tensor);
  }
  const Tensors found = torch::autograd::grad(op.run(call.tensors, call.values), wanted, call.grads, std::nullopt,
                                              false, /*allow_unused=*/true);
  Tensors results;
  auto next = found.begin();
  for (const at::Tensor& tensor : call.tensors) {
    if (!has_gradient(tensor)) {
      results.push_back(no_gradient(call));
      continue;
    }
    const at::Tensor& grad = *next++;
    results.push_back(grad.defined() ? fresh(grad.detach(), call.grads)
                                     : at::zeros(tensor.sizes(), tensor.options().requires_grad(false)));
  }
  return_all(std::move(results), *stack);
}

void meta_backward_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  const Call call = take(op, op.outputs, *stack);
  Tensors results;
  for (const at::Tensor& tensor : call.tensors)
    results.push_back(has_gradient(tensor) ? empty(tensor, tensor.sym_sizes().vec()) : no_gradient(call));
  return_all(std::move(results), *stack);
}

struct Differentiable : torch::autograd::Function<Differentiable> {
  using List = torch::autograd::variable_list;

  /// The first argument is for the graph: the tensors of the call that are not absent.
  static List forward(torch::autograd::AutogradContext* ctx, at::TensorList, const Call& call,
                      const c10::OperatorHandle& handle) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward(call.tensors);
    ctx->saved_data["values"] = c10::ivalue::Tuple::create(call.values);
    ctx->saved_data["name"] = handle.schema().name();
    return called(handle, call);
  }

  static List backward(torch::autograd::AutogradContext* ctx, List grads) {
    Call call{std::move(grads), ctx->get_saved_variables(), ctx->saved_data["values"].toTuple()->elements().vec()};
    const c10::OperatorHandle backward = c10::Dispatcher::singleton().findSchemaOrThrow(
        (ctx->saved_data["name"].toStringRef() + kBackward).c_str(), "");
    const List found = called(backward, call);
    List results;
    for (size_t i = 0; i < found.size(); ++i)
      if (call.tensors[i].defined()) results.push_back(has_gradient(call.tensors[i]) ? found[i] : at::Tensor());
    results.resize(results.size() + 2);  // of the call and the handle
    return results;
  }
};

void autograd_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Call call = take(operator_of(handle), 0, *stack);
  Tensors present;
  for (const at::Tensor& tensor : call.tensors)
    if (tensor.defined()) present.push_back(tensor);
  return_all(Differentiable::apply(at::TensorList(present), call, handle), *stack);
}

/// Refuses second derivatives: the kernels of a gradient make no graph that leads to the arguments.
void autograd_backward_kernel(const c10::OperatorHandle& handle, torch::jit::Stack* stack) {
  const Operator& op = operator_of(handle);
  const Call call = take(op, op.outputs, *stack);
  const auto wants_graph = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  TORCH_CHECK_NOT_IMPLEMENTED(!at::GradMode::is_enabled() || (std::ranges::none_of(call.grads, wants_graph) &&
                                                              std::ranges::none_of(call.tensors, wants_graph)),
                              "mnemo.ops.", op.name, ": second derivatives are not supported; drop create_graph=True");
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return_all(called(handle, call), *stack);
}

std::string tensors_of_schema(size_t count) {
  std::string text = "(";
  for (size_t i = 0; i < count; ++i) text += i == 0 ? "Tensor" : ", Tensor";
  return count == 1 ? "Tensor" : text + ")";
}

void define(torch::Library& library) {
  for (const Operator& op : kOperators) {
    const std::string arguments = std::string(op.tensors) + ", " + op.values;
    std::string grads;
    for (size_t i = 0; i < op.outputs; ++i) grads += "Tensor grad_" + std::to_string(i) + ", ";
    library.def((std::string(op.name) + "(" + arguments + ") -> " + tensors_of_schema(op.outputs)).c_str(),
                {at::Tag::pt2_compliant_tag});
    library.def(
        (std::string(op.name) + kBackward + "(" + grads + arguments + ") -> " + tensors_of_schema(op.num_tensors()))
            .c_str(),
        {at::Tag::pt2_compliant_tag});
  }
}

template <auto forward, auto backward>
void implement(torch::Library& library) {
  for (const Operator& op : kOperators) {
    library.impl(op.name, torch::CppFunction::makeFromBoxedFunction<forward>());
    library.impl((std::string(op.name) + kBackward).c_str(), torch::CppFunction::makeFromBoxedFunction<backward>());
  }
}

}  // namespace

TORCH_LIBRARY(mnemo, library) { define(library); }
TORCH_LIBRARY_IMPL(mnemo, CPU, library) { implement<&cpu_kernel, &cpu_backward_kernel>(library); }
TORCH_LIBRARY_IMPL(mnemo, Meta, library) { implement<&meta_kernel, &meta_backward_kernel>(library); }
TORCH_LIBRARY_IMPL(mnemo, Autograd, library) { implement<&autograd_kernel, &autograd_backward_kernel>(library); }

}  // namespace mnemo::python
