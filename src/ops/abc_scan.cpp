#include "ops/abc_scan.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The loops below are compiled twice, for every x86-64 and for AVX2; the processor chooses.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define MNEMO_AVX2 __attribute__((target("avx2,fma")))
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define MNEMO_AVX2
bool has_avx2() { return false; }
#endif
#define MNEMO_INLINE inline __attribute__((always_inline))

template <class T>
MNEMO_INLINE T dot(const T* a, const T* b, int64_t size) {
  T lanes[8] = {};
  int64_t c = 0;
  for (; c + 8 <= size; c += 8) {
    for (int64_t l = 0; l < 8; ++l) lanes[l] += a[c + l] * b[c + l];
  }
  T sum = 0;
  for (; c < size; ++c) sum += a[c] * b[c];
  for (T lane : lanes) sum += lane;
  return sum;
}

/// out = keep * out + weight * add
template <class T>
MNEMO_INLINE void blend(T* __restrict out, T keep, const T* __restrict add, T weight, int64_t size) {
  for (int64_t c = 0; c < size; ++c) out[c] = keep * out[c] + weight * add[c];
}

/// exp(a - b) with b >= a; 0 where nothing was written (a = -inf).
template <class T>
MNEMO_INLINE T weight_of(T a, T b) {
  return a == -std::numeric_limits<T>::infinity() ? T(0) : std::exp(a - b);
}

template <class T>
MNEMO_INLINE T log_add_exp(T a, T b) {
  const T high = std::max(a, b), low = std::min(a, b);
  return low == -std::numeric_limits<T>::infinity() ? high : high + std::log1p(std::exp(low - high));
}

struct Shape {
  int64_t time, slots, width;
};

/// One token written to the memory of one head: k_memory, v_memory [n,d] and z [n] move on.
template <class T>
MNEMO_INLINE void write_token(T* k_memory, T* v_memory, T* z, const T* k, const T* v, const T* s, const Shape& shape) {
  for (int64_t j = 0; j < shape.slots; ++j) {
    const T next = log_add_exp(z[j], s[j]);
    const T keep = weight_of(z[j], next), write = weight_of(s[j], next);
    z[j] = next;
    blend(k_memory + j * shape.width, keep, k, write, shape.width);
    blend(v_memory + j * shape.width, keep, v, write, shape.width);
  }
}

template <class T>
struct Forward {
  const T *q, *k, *v, *s;     // [T,d] [T,d] [T,d] [T,n] of one head
  T *k_memory, *v_memory, *z;  // [n,d] [n,d] [n], start to end
  T *o, *z_path, *p;          // [T,d] [T,n] [T,n]; the last two may be null
};

template <class T>
MNEMO_INLINE void forward_head(const Forward<T>& f, const Shape& shape, T scale, T* p) {
  for (int64_t t = 0; t < shape.time; ++t) {
    const T* q = f.q + t * shape.width;
    write_token(f.k_memory, f.v_memory, f.z, f.k + t * shape.width, f.v + t * shape.width, f.s + t * shape.slots, shape);
    T highest = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < shape.slots; ++j) {
      p[j] = dot(f.k_memory + j * shape.width, q, shape.width) * scale;
      highest = std::max(highest, p[j]);
    }
    T sum = 0;
    for (int64_t j = 0; j < shape.slots; ++j) sum += p[j] = std::exp(p[j] - highest);
    T* o = f.o + t * shape.width;
    for (int64_t c = 0; c < shape.width; ++c) o[c] = 0;
    for (int64_t j = 0; j < shape.slots; ++j) {
      p[j] /= sum;
      blend(o, T(1), f.v_memory + j * shape.width, p[j], shape.width);
    }
    if (f.z_path != nullptr) {
      std::copy(f.z, f.z + shape.slots, f.z_path + t * shape.slots);
      std::copy(p, p + shape.slots, f.p + t * shape.slots);
    }
  }
}

template <class T>
struct Backward {
  const T *q, *k, *v, *s, *z_path, *p, *grad_o;
  const T *k_start, *v_start, *z_start;       // memory before the first token
  const T *grad_k_end, *grad_v_end, *grad_z_end;
  T *grad_q, *grad_k, *grad_v, *grad_s, *grad_k_start, *grad_v_start, *grad_z_start;
};

/// The scan forward gives dq_t = scale sum_j g_tj K_tj; the scan back carries, relative to z_t,
///   R = sum_{t'>=t} e^{z_t - z_t'} g_t'j q_t' scale,  S likewise of p_t'j do_t',  C of g q.K scale + p do.V
/// and a token's weight w = e^{s - z_t} meets them: dk = sum_j w R_j, dv = sum_j w S_j, ds_j = w (k.R_j + v.S_j - C_j).
template <class T>
MNEMO_INLINE void backward_head(const Backward<T>& b, const Shape& shape, T scale, std::vector<T>& scratch) {
  const int64_t area = shape.slots * shape.width;
  scratch.assign(2 * area + 2 * shape.slots + 2 * shape.time * shape.slots, T(0));
  T* k_memory = scratch.data();
  T* v_memory = k_memory + area;
  T* z = v_memory + area;
  T* c_sum = z + shape.slots;
  T* g = c_sum + shape.slots;
  T* c = g + shape.time * shape.slots;
  std::copy(b.k_start, b.k_start + area, k_memory);
  std::copy(b.v_start, b.v_start + area, v_memory);
  std::copy(b.z_start, b.z_start + shape.slots, z);
  for (int64_t t = 0; t < shape.time; ++t) {
    const T *q = b.q + t * shape.width, *grad_o = b.grad_o + t * shape.width, *p = b.p + t * shape.slots;
    write_token(k_memory, v_memory, z, b.k + t * shape.width, b.v + t * shape.width, b.s + t * shape.slots, shape);
    T* gt = g + t * shape.slots;
    T* ct = c + t * shape.slots;
    T mean = 0;
    for (int64_t j = 0; j < shape.slots; ++j) {
      gt[j] = dot(v_memory + j * shape.width, grad_o, shape.width);
      mean += p[j] * gt[j];
    }
    T* grad_q = b.grad_q + t * shape.width;
    for (int64_t x = 0; x < shape.width; ++x) grad_q[x] = 0;
    for (int64_t j = 0; j < shape.slots; ++j) {
      const T grad_p = gt[j];
      gt[j] = p[j] * (grad_p - mean) * scale;
      ct[j] = gt[j] * dot(k_memory + j * shape.width, q, shape.width) + p[j] * grad_p;
      blend(grad_q, T(1), k_memory + j * shape.width, gt[j], shape.width);
    }
  }
  for (int64_t j = 0; j < shape.slots; ++j) {
    const int64_t at = j * shape.width;
    c_sum[j] = dot(k_memory + at, b.grad_k_end + at, shape.width) + dot(v_memory + at, b.grad_v_end + at, shape.width) -
               b.grad_z_end[j];
  }
  T* r = k_memory;
  T* s_sum = v_memory;
  std::copy(b.grad_k_end, b.grad_k_end + area, r);
  std::copy(b.grad_v_end, b.grad_v_end + area, s_sum);
  for (int64_t t = shape.time - 1; t >= 0; --t) {
    const T *q = b.q + t * shape.width, *k = b.k + t * shape.width, *v = b.v + t * shape.width;
    const T *grad_o = b.grad_o + t * shape.width, *p = b.p + t * shape.slots, *zt = b.z_path + t * shape.slots;
    T *grad_k = b.grad_k + t * shape.width, *grad_v = b.grad_v + t * shape.width;
    for (int64_t x = 0; x < shape.width; ++x) grad_k[x] = grad_v[x] = 0;
    for (int64_t j = 0; j < shape.slots; ++j) {
      const T decay = t + 1 < shape.time ? weight_of(zt[j], zt[shape.slots + j]) : T(1);
      T *rj = r + j * shape.width, *sj = s_sum + j * shape.width;
      blend(rj, decay, q, g[t * shape.slots + j], shape.width);
      blend(sj, decay, grad_o, p[j], shape.width);
      c_sum[j] = decay * c_sum[j] + c[t * shape.slots + j];
      const T w = weight_of(b.s[t * shape.slots + j], zt[j]);
      blend(grad_k, T(1), rj, w, shape.width);
      blend(grad_v, T(1), sj, w, shape.width);
      b.grad_s[t * shape.slots + j] = w * (dot(k, rj, shape.width) + dot(v, sj, shape.width) - c_sum[j]);
    }
  }
  for (int64_t j = 0; j < shape.slots; ++j) {
    const int64_t at = j * shape.width;
    const T w = shape.time > 0 ? weight_of(b.z_start[j], b.z_path[j]) : T(1);
    b.grad_z_start[j] =
        w == T(0) ? T(0)
                  : w * (dot(b.k_start + at, r + at, shape.width) + dot(b.v_start + at, s_sum + at, shape.width) - c_sum[j]);
    for (int64_t x = 0; x < shape.width; ++x) {
      b.grad_k_start[at + x] = w * r[at + x];
      b.grad_v_start[at + x] = w * s_sum[at + x];
    }
  }
}

template <class T>
MNEMO_AVX2 void forward_avx2(const Forward<T>& f, const Shape& shape, T scale, T* p) {
  forward_head(f, shape, scale, p);
}
template <class T>
void forward_plain(const Forward<T>& f, const Shape& shape, T scale, T* p) {
  forward_head(f, shape, scale, p);
}
template <class T>
MNEMO_AVX2 void backward_avx2(const Backward<T>& b, const Shape& shape, T scale, std::vector<T>& scratch) {
  backward_head(b, shape, scale, scratch);
}
template <class T>
void backward_plain(const Backward<T>& b, const Shape& shape, T scale, std::vector<T>& scratch) {
  backward_head(b, shape, scale, scratch);
}

struct Scan {
  at::Tensor o, k, v, z, z_path, p;
};

Scan scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s, const AbcMemory& memory,
          double scale, bool keep_path) {
  const Shape shape{q.size(2), s.size(3), q.size(3)};
  Scan result{at::empty_like(q, at::MemoryFormat::Contiguous), memory.k.clone(at::MemoryFormat::Contiguous),
              memory.v.clone(at::MemoryFormat::Contiguous), memory.z.clone(at::MemoryFormat::Contiguous), {}, {}};
  if (keep_path) {
    result.z_path = at::empty(s.sizes(), s.options());
    result.p = at::empty(s.sizes(), s.options());
  }
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "abc_exp_scan", [&] {
    const scalar_t *pq = q.const_data_ptr<scalar_t>(), *pk = k.const_data_ptr<scalar_t>(),
                   *pv = v.const_data_ptr<scalar_t>(), *ps = s.const_data_ptr<scalar_t>();
    scalar_t *mk = result.k.mutable_data_ptr<scalar_t>(), *mv = result.v.mutable_data_ptr<scalar_t>(),
             *mz = result.z.mutable_data_ptr<scalar_t>(), *po = result.o.mutable_data_ptr<scalar_t>();
    scalar_t* path = keep_path ? result.z_path.mutable_data_ptr<scalar_t>() : nullptr;
    scalar_t* pp = keep_path ? result.p.mutable_data_ptr<scalar_t>() : nullptr;
    const bool avx2 = has_avx2();
    at::parallel_for(0, q.size(0) * q.size(1), 1, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> p(shape.slots);
      for (int64_t head = begin; head < end; ++head) {
        const int64_t rows = head * shape.time * shape.width, logits = head * shape.time * shape.slots;
        const int64_t area = head * shape.slots * shape.width;
        const Forward<scalar_t> f{pq + rows, pk + rows, pv + rows, ps + logits, mk + area, mv + area,
                                  mz + head * shape.slots, po + rows, path ? path + logits : nullptr,
                                  pp ? pp + logits : nullptr};
        (avx2 ? forward_avx2<scalar_t> : forward_plain<scalar_t>)(f, shape, static_cast<scalar_t>(scale), p.data());
      }
    });
  });
  return result;
}

struct ScanFunction : torch::autograd::Function<ScanFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q_in, const at::Tensor& k_in,
                               const at::Tensor& v_in, const at::Tensor& s_in, const at::Tensor& memory_k,
                               const at::Tensor& memory_v, const at::Tensor& memory_z, double scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor q = q_in.contiguous(), k = k_in.contiguous(), v = v_in.contiguous(), s = s_in.contiguous();
    Scan result = scan(q, k, v, s, {memory_k, memory_v, memory_z}, scale, true);
    ctx->save_for_backward({q, k, v, s, memory_k, memory_v, memory_z, result.z_path, result.p});
    ctx->saved_data["scale"] = scale;
    return {result.o, result.k, result.v, result.z};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &s = saved[3];
    const double scale = ctx->saved_data["scale"].toDouble();
    const Shape shape{q.size(2), s.size(3), q.size(3)};
    const at::Tensor start_k = saved[4].contiguous(), start_v = saved[5].contiguous(), start_z = saved[6].contiguous();
    auto held = [](const at::Tensor& grad, const at::Tensor& like) {
      return grad.defined() ? grad.contiguous() : at::zeros(like.sizes(), like.options());
    };
    const at::Tensor grad_o = held(grads[0], q), grad_k_end = held(grads[1], start_k),
                     grad_v_end = held(grads[2], start_v), grad_z_end = held(grads[3], start_z);
    at::Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(q), grad_v = at::empty_like(q),
               grad_s = at::empty_like(s), grad_k_start = at::empty_like(start_k), grad_v_start = at::empty_like(start_v),
               grad_z_start = at::empty_like(start_z);
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "abc_exp_scan_backward", [&] {
      auto in = [](const at::Tensor& tensor) { return tensor.const_data_ptr<scalar_t>(); };
      auto out = [](at::Tensor& tensor) { return tensor.mutable_data_ptr<scalar_t>(); };
      const Backward<scalar_t> all{in(q), in(saved[1]), in(saved[2]), in(s), in(saved[7]), in(saved[8]), in(grad_o),
                                   in(start_k), in(start_v), in(start_z), in(grad_k_end), in(grad_v_end), in(grad_z_end),
                                   out(grad_q), out(grad_k), out(grad_v), out(grad_s), out(grad_k_start),
                                   out(grad_v_start), out(grad_z_start)};
      const bool avx2 = has_avx2();
      at::parallel_for(0, q.size(0) * q.size(1), 1, [&](int64_t begin, int64_t end) {
        std::vector<scalar_t> scratch;
        for (int64_t head = begin; head < end; ++head) {
          const int64_t r = head * shape.time * shape.width, l = head * shape.time * shape.slots;
          const int64_t a = head * shape.slots * shape.width, n = head * shape.slots;
          const Backward<scalar_t> one{all.q + r, all.k + r, all.v + r, all.s + l, all.z_path + l, all.p + l,
                                       all.grad_o + r, all.k_start + a, all.v_start + a, all.z_start + n,
                                       all.grad_k_end + a, all.grad_v_end + a, all.grad_z_end + n, all.grad_q + r,
                                       all.grad_k + r, all.grad_v + r, all.grad_s + l, all.grad_k_start + a,
                                       all.grad_v_start + a, all.grad_z_start + n};
          (avx2 ? backward_avx2<scalar_t> : backward_plain<scalar_t>)(one, shape, static_cast<scalar_t>(scale), scratch);
        }
      });
    });
    return {grad_q, grad_k, grad_v, grad_s, grad_k_start, grad_v_start, grad_z_start, at::Tensor()};
  }
};

}  // namespace

AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale) {
  if (!at::GradMode::is_enabled()) {
    Scan result = scan(q.contiguous(), k.contiguous(), v.contiguous(), s.contiguous(), memory, scale, false);
    return {result.o, {result.k, result.v, result.z}};
  }
  variable_list out = ScanFunction::apply(q, k, v, s, memory.k, memory.v, memory.z, scale);
  return {out[0], {out[1], out[2], out[3]}};
}

}  // namespace mnemo::ops
