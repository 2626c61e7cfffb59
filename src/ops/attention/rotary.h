#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace mnemo::ops {

/// How the frequencies of rotary positions are changed for texts longer than those of the training.
///   none    f_k
///   interpolation  f_k / factor (position interpolation, Chen et al. 2023)
///   llama3  f_k share + (f_k / factor) (1 - share), with turns = C f_k / 2 pi, C = original_max_len, and
///           share = clamp((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1) (Llama 3.1)
struct RotaryScaling {
  enum class Type { none, interpolation, llama3 };
  Type type = Type::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_max_len = 8192;
};

/// f_k = base^(-2k/r), k = 0 .. r/2-1, scaled. r even.
std::vector<double> rotary_frequencies(int64_t dims, double base, const RotaryScaling& scaling);

/// Rotary positions (Su et al. 2021, eq. 34, with the pairs (k, k + r/2) of the released Llama and GPT-NeoX): row n of
/// each head is turned by n f_k, channels r and above stay.
///   u = x_k, v = x_{k+r/2}:  u' = u cos(n f_k) - v sin(n f_k),  v' = v cos(n f_k) + u sin(n f_k)
///   x [B,H,T,d], rows n = first .. first + T - 1; frequencies r/2 of them, r <= d
/// Angles are computed in float64 whatever x's type; inverse: turned back.
at::Tensor rotate(const at::Tensor& x, int64_t first, const std::vector<double>& frequencies, bool inverse = false);
/// Row i of sequence b is turned by numbers[b,i]. numbers int64 [B,T] or [T]; [B,1] or [1]: the same for all rows.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& numbers, const std::vector<double>& frequencies,
                  bool inverse = false);

/// cos and sin of n f_k, each frequencies.size() numbers.
void rotary_angles(int64_t n, const std::vector<double>& frequencies, float* cosines, float* sines);
/// Turns one head's row in place: 2 * count channels, by those angles.
void rotate_row(float* x, const float* cosines, const float* sines, int64_t count);
/// Turns the columns of x [2 * count and more, width] in place: column c is a row whose channels are `width` apart.
void rotate_columns(float* x, const float* cosines, const float* sines, int64_t count, int64_t width);

}  // namespace mnemo::ops
