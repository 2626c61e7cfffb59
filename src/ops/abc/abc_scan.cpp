#include "ops/abc/abc_scan.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/abc/abc_chunks.h"
#include "ops/cuda.h"
#include "ops/linear/products.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ScanInputs {
  at::Tensor q, k, v, s;
  double scale;

  template <class T>
  AbcProblem<T> problem() const {
    return {q.size(0),
            q.size(1),
            q.size(2),
            s.size(3),
            q.size(3),
            v.size(3),
            heads_of<const T>(q),
            heads_of<const T>(k),
            heads_of<const T>(v),
            heads_of<const T>(s),
            static_cast<T>(scale)};
  }
};

template <class T>
AbcMemories<T> memories_of(const AbcMemory& memory) {
  if (!memory.k.defined()) return {};
  if constexpr (std::is_const_v<T>) {
    using Plain = std::remove_const_t<T>;
    return {memory.k.const_data_ptr<Plain>(), memory.v.const_data_ptr<Plain>(), memory.z.const_data_ptr<Plain>()};
  } else {
    return {memory.k.mutable_data_ptr<T>(), memory.v.mutable_data_ptr<T>(), memory.z.mutable_data_ptr<T>()};
  }
}

/// Space for the memories before each chunk: [B,H,chunks,..] for each of the three tensors.
AbcMemory empty_path(const AbcMemory& memory, int64_t time) {
  const int64_t chunks = (time + kAbcChunk - 1) / kAbcChunk;
  auto with_chunks = [&](const at::Tensor& tensor) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin() + 2, chunks);
    return at::empty(shape, tensor.options());
  };
  return {with_chunks(memory.k), with_chunks(memory.v), with_chunks(memory.z)};
}

struct Scan {
  at::Tensor o;
  AbcMemory memory, path;
};

Scan scan_forward(const ScanInputs& in, const AbcMemory& memory, bool keeps_path) {
  Scan scan{empty_heads(in.q, in.q.size(2), in.v.size(3)),
            {memory.k.clone(at::MemoryFormat::Contiguous), memory.v.clone(at::MemoryFormat::Contiguous),
             memory.z.clone(at::MemoryFormat::Contiguous)},
            {}};
  if (keeps_path) scan.path = empty_path(memory, in.q.size(2));
  AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "abc_exp_scan", [&] {
    abc_forward<scalar_t>(in.problem<scalar_t>(), heads_of<scalar_t>(scan.o), memories_of<scalar_t>(scan.memory),
                          memories_of<scalar_t>(scan.path));
  });
  return scan;
}

struct ScanFunction : torch::autograd::Function<ScanFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& s, const at::Tensor& memory_k, const at::Tensor& memory_v,
                               const at::Tensor& memory_z, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Scan scan = scan_forward({q, k, v, s, scale}, {memory_k, memory_v, memory_z}, true);
    ctx->save_for_backward({q, k, v, s, scan.path.k, scan.path.v, scan.path.z});
    ctx->saved_data["scale"] = scale;
    return {scan.o, scan.memory.k, scan.memory.v, scan.memory.z};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const ScanInputs in{saved[0], saved[1], saved[2], saved[3], ctx->saved_data["scale"].toDouble()};
    const AbcMemory path{saved[4], saved[5], saved[6]};
    const int64_t time = in.q.size(2);
    const at::Tensor grad_o = with_rows(grads[0]);
    at::Tensor grad_q = empty_heads(in.q, time, in.q.size(3)), grad_k = empty_heads(in.q, time, in.q.size(3)),
               grad_v = empty_heads(in.q, time, in.v.size(3)), grad_s = empty_heads(in.q, time, in.s.size(3));
    // The gradients of the last memory become those of the first, in place.
    const AbcMemory memory{grads[1].clone(at::MemoryFormat::Contiguous), grads[2].clone(at::MemoryFormat::Contiguous),
                           grads[3].clone(at::MemoryFormat::Contiguous)};
    AT_DISPATCH_FLOATING_TYPES(in.q.scalar_type(), "abc_exp_scan_backward", [&] {
      abc_backward<scalar_t>(in.problem<scalar_t>(), memories_of<const scalar_t>(path),
                             {heads_of<const scalar_t>(grad_o), heads_of<scalar_t>(grad_q), heads_of<scalar_t>(grad_k),
                              heads_of<scalar_t>(grad_v), heads_of<scalar_t>(grad_s), memories_of<scalar_t>(memory)});
    });
    return {grad_q, grad_k, grad_v, grad_s, memory.k, memory.v, memory.z, at::Tensor()};
  }
};

}  // namespace

AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale) {
  // Counted as in the formula, token by token; chunks replace a part of it by products between tokens.
  const DeclaredProducts products("mnemo::abc_exp_scan", [&] {
    return s.numel() * 2 * (q.size(3) + v.size(3));  // written to K and V, read by q and by the weights
  });
  if (q.is_cuda()) return cuda::abc_exp_scan(q, k, v, s, memory, scale);
  const ScanInputs in{with_rows(q), with_rows(k), with_rows(v), with_rows(s), scale};
  if (!at::GradMode::is_enabled()) {
    const Scan scan = scan_forward(in, memory, false);
    return {scan.o, scan.memory};
  }
  variable_list out = ScanFunction::apply(in.q, in.k, in.v, in.s, memory.k, memory.v, memory.z, scale);
  return {out[0], {out[1], out[2], out[3]}};
}

}  // namespace mnemo::ops
