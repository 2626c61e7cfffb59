#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mnemo::data {

/// A field with any number of rows for each sample of a batch, such as the boxes of an image.
struct Ragged {
  at::Tensor values;                 ///< [sum_b n_b, ...], sample after sample
  std::vector<int64_t> counts = {};  ///< n_b
};

/// Gets every field of a struct of batches, which lists them once:
///
///   struct BoxTargets {
///     Ragged boxes;
///     at::Tensor sizes;  ///< [B,2]
///     template <class F> void visit(F&& f) { f("boxes", boxes); f("sizes", sizes); }
///   };
///
/// A tensor has a row for each sample, in its first dimension; an undefined one is absent. The functions below are
/// generic over that declaration.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void operator()(std::string_view name, at::Tensor& tensor) = 0;
  virtual void operator()(std::string_view name, Ragged& ragged) = 0;
};

template <class T>
concept HasFields = requires(T value, FieldVisitor& visitor) {
  value.visit(visitor);
};

/// Counts the samples. Throws InternalError where two fields differ in it.
class CountRows final : public FieldVisitor {
 public:
  void operator()(std::string_view name, at::Tensor& tensor) override;
  void operator()(std::string_view name, Ragged& ragged) override;
  int64_t count() const { return count_.value_or(0); }

 private:
  void note(std::string_view name, int64_t count);
  std::optional<int64_t> count_;
};

/// Keeps `count` samples from `first` on.
class KeepRows final : public FieldVisitor {
 public:
  KeepRows(int64_t first, int64_t count) : first_(first), count_(count) {}
  void operator()(std::string_view name, at::Tensor& tensor) override;
  void operator()(std::string_view name, Ragged& ragged) override;

 private:
  int64_t first_, count_;
};

/// Moves tensors to a device.
class MoveTo final : public FieldVisitor {
 public:
  explicit MoveTo(at::Device device) : device_(device) {}
  void operator()(std::string_view name, at::Tensor& tensor) override;
  void operator()(std::string_view name, Ragged& ragged) override;

 private:
  at::Device device_;
};

/// The number of samples of a batch.
template <HasFields T>
int64_t num_rows(T batch) {
  CountRows rows;
  batch.visit(rows);
  return rows.count();
}

/// Samples [first, first + count) of a batch.
template <HasFields T>
T rows(T batch, int64_t first, int64_t count) {
  if (first == 0 && count == num_rows(batch)) return batch;
  KeepRows keep(first, count);
  batch.visit(keep);
  return batch;
}

/// The batch on a device.
template <HasFields T>
T to(T batch, at::Device device) {
  if (device.is_cpu()) return batch;
  MoveTo move(device);
  batch.visit(move);
  return batch;
}

}  // namespace mnemo::data
