#include "core/append_rows.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace mnemo::core {
namespace {

/// Owns a buffer with spare rows. Several tensors may share its first rows; whoever advances `filled` may write after
/// them.
struct Room {
  at::Tensor memory;
  int64_t capacity;
  std::atomic<int64_t> filled;
};

void free_room(void* room) { delete static_cast<Room*>(room); }

Room* room_of(const at::Tensor& rows) {
  const at::DataPtr& data = rows.storage().data_ptr();
  return data.get_deleter() == &free_room ? static_cast<Room*>(data.get_context()) : nullptr;
}

/// Strides of a contiguous buffer with that many rows along dim.
std::vector<int64_t> strides_with(at::IntArrayRef sizes, int64_t dim, int64_t capacity) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (auto d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = step;
    step *= d == dim ? capacity : sizes[d];
  }
  return strides;
}

/// [past; fresh] in past's own buffer. Returns an undefined tensor if past does not end where the buffer is filled, or
/// if there is no room left.
at::Tensor append_in_place(const at::Tensor& past, const at::Tensor& fresh, int64_t dim) {
  Room* room = past.numel() == 0 ? nullptr : room_of(past);
  if (room == nullptr) return {};
  std::vector<int64_t> sizes = past.sizes().vec();
  const int64_t row = strides_with(sizes, dim, 1)[dim];
  const std::vector<int64_t> strides = strides_with(sizes, dim, room->capacity);
  if (past.numel() / sizes[dim] * room->capacity != room->memory.numel()) return {};  // only part of the batch
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && past.stride(static_cast<int64_t>(d)) != strides[d]) return {};
  }
  const int64_t first = past.storage_offset() / row, count = fresh.size(dim);
  int64_t end = first + sizes[dim];
  if (past.storage_offset() % row != 0 || end + count > room->capacity ||
      !room->filled.compare_exchange_strong(end, end + count))
    return {};
  sizes[dim] += count;
  at::Tensor all = past.as_strided(sizes, strides, past.storage_offset());
  all.narrow(dim, all.size(dim) - count, count).copy_(fresh);
  return all;
}

at::Tensor append_in_new_room(const at::Tensor& past, const at::Tensor& fresh, int64_t dim) {
  const int64_t before = past.defined() ? past.size(dim) : 0, count = before + fresh.size(dim);
  constexpr int64_t kMinRows = 16;
  std::vector<int64_t> sizes = fresh.sizes().vec();
  sizes[dim] = std::max(kMinRows, 2 * count);
  const at::TensorOptions options = fresh.options().requires_grad(false);
  std::unique_ptr<Room> room(new Room{at::empty(sizes, options), sizes[dim], count});
  void* data = room->memory.mutable_data_ptr();
  const at::Tensor all = at::for_blob(data, sizes).context(room.release(), free_room).options(options).make_tensor();
  if (before > 0) all.narrow(dim, 0, before).copy_(past);
  all.narrow(dim, before, count - before).copy_(fresh);
  return all.narrow(dim, 0, count);
}

/// Same type and same sizes, except along dim.
bool alike(const at::Tensor& a, const at::Tensor& b, int64_t dim) {
  std::vector<int64_t> sizes = a.sizes().vec();
  if (a.dim() == b.dim()) sizes[dim] = b.size(dim);
  return b.sizes() == sizes && a.scalar_type() == b.scalar_type();
}

}  // namespace

at::Tensor append_rows(const at::Tensor& past, const at::Tensor& fresh, int64_t dim) {
  const bool own_memory = c10::InferenceMode::is_enabled() && fresh.is_cpu() && fresh.numel() > 0;
  if (!own_memory || (past.defined() && !alike(past, fresh, dim)))
    return past.defined() ? at::cat({past, fresh}, dim) : fresh;
  at::Tensor all = past.defined() ? append_in_place(past, fresh, dim) : at::Tensor();
  return all.defined() ? all : append_in_new_room(past, fresh, dim);
}

}  // namespace mnemo::core
