#include "core/key_rows_state.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace mnemo::core {
namespace {

/// Initial capacity for keys; a quarter more than is wanted when it is full.
constexpr int64_t kFirstRoom = 32;
/// Room for keys of its own that a copy has.
constexpr int64_t kRoomOfCopy = 8;

}  // namespace

KeyRowsState::KeyRowsState(const KeyRowsState& other)
    : CopiedState(other), layout_(other.layout_), missing_(other.missing_), keys_(other.keys_) {
  if (other.capacity_ == 0) return;
  capacity_ = keys_ - missing_ + kRoomOfCopy;
  k_ = other.copy_of(other.k_, capacity_);
  v_ = other.copy_of(other.v_, capacity_);
}

/// New memory with `capacity` rows per head, which begins with the keys or values that are held.
ops::AlignedBytes KeyRowsState::copy_of(const ops::AlignedBytes& memory, int64_t capacity) const {
  const int64_t row = layout_.bytes_of_row(), held = keys_ - missing_;
  ops::AlignedBytes fresh(layout_.heads * capacity * row);
  // The padding between the head's width and the padded width must be zero everywhere.
  if (layout_.width != layout_.head_dim) std::memset(fresh.as<std::byte>(), 0, static_cast<size_t>(fresh.size));
  for (int64_t head = 0; head < layout_.heads && held > 0; ++head)
    std::memcpy(fresh.as<std::byte>() + head * capacity * row,
                memory.as<std::byte>() + (head * capacity_ + first_) * row, static_cast<size_t>(held * row));
  return fresh;
}

/// Moves the keys to the front of memory with `capacity` rows per head.
void KeyRowsState::move(int64_t capacity) {
  const int64_t row = layout_.bytes_of_row(), held = keys_ - missing_;
  for (ops::AlignedBytes* memory : {&k_, &v_}) {
    if (capacity != capacity_) {
      *memory = copy_of(*memory, capacity);
      continue;
    }
    for (int64_t head = 0; head < layout_.heads && held > 0; ++head) {
      std::byte* of_head = memory->as<std::byte>() + head * capacity_ * row;
      std::memmove(of_head, of_head + first_ * row, static_cast<size_t>(held * row));
    }
  }
  capacity_ = capacity;
  first_ = 0;
}

void KeyRowsState::reserve(int64_t more) {
  const int64_t held = keys_ - missing_, wanted = held + more;
  if (first_ + wanted <= capacity_) return;
  // Once a quarter as many rows have left as are held, they slide to the front.
  const bool slides = wanted <= capacity_ && 4 * first_ >= held;
  move(slides ? capacity_ : std::max(kFirstRoom, wanted + wanted / 4));
}

void KeyRowsState::store(int64_t number, const float* k, const float* v) {
  for (int64_t head = 0; head < layout_.heads; ++head) {
    const int64_t d = layout_.head_dim;
    if (layout_.int8) {
      ops::quantise_row(k + head * d, d, layout_.width, key<int8_t>(head, number));
      ops::quantise_row(v + head * d, d, layout_.width, value<int8_t>(head, number));
    } else if (layout_.wide) {
      ops::copy_row(k + head * d, d, key<float>(head, number));
      ops::copy_row(v + head * d, d, value<float>(head, number));
    } else {
      ops::copy_row(k + head * d, d, key<ops::Bf16Bits>(head, number));
      ops::copy_row(v + head * d, d, value<ops::Bf16Bits>(head, number));
    }
  }
}

/// Drops keys and leaves gaps for keys that will be computed from rows.
void KeyRowsState::drop_to(std::span<const KeptKeys> kept, int64_t first) {
  int64_t number = 0, total = 0, stay = 0, from = missing_;
  bool slides = true;  // what remains is one contiguous run of keys, or nothing
  for (const KeptKeys& whole : kept) {
    const KeptKeys run = held_part(whole, number, first);
    number += whole.count;
    if (run.count == 0) continue;
    if (total == 0) from = run.from;
    slides = slides && run.rows == nullptr && run.from == from + total;
    if (run.rows == nullptr) stay += run.count;
    total += run.count;
  }
  if (slides) {
    first_ = total == 0 ? 0 : first_ + from - missing_;
    missing_ = first;
    keys_ = number;
    return;
  }
  if (total > capacity_) {
    base::ensure(stay == 0, "keys are made of rows in place of others");
    missing_ = keys_ = first_ = 0;
    reserve(total);
  }
  const int64_t row = layout_.bytes_of_row();
  for (ops::AlignedBytes* memory : {&k_, &v_}) {
    for (int64_t head = 0; head < layout_.heads; ++head) {
      std::byte* start = memory->as<std::byte>() + head * capacity_ * row;
      int64_t at = 0, place = 0;
      for (const KeptKeys& whole : kept) {
        const KeptKeys run = held_part(whole, at, first);
        at += whole.count;
        if (run.rows == nullptr && run.count > 0) {
          // Runs are in ascending order and move left, so none is overwritten before it has been moved.
          const int64_t source = first_ + run.from - missing_;
          base::ensure(place <= source, "keys that stay move to the left");
          std::memmove(start + place * row, start + source * row, static_cast<size_t>(run.count * row));
        }
        place += run.count;
      }
    }
  }
  first_ = 0;
  missing_ = first;
  keys_ = number;
}

at::Tensor KeyRowsState::tensor(bool values, int64_t count) const {
  const at::ScalarType type = layout_.wide ? at::kFloat : at::kBFloat16;
  if (count == 0) return at::empty({1, layout_.heads, 0, layout_.head_dim}, at::kFloat);
  if (layout_.int8) {
    at::Tensor rows = at::empty({1, layout_.heads, count, layout_.head_dim}, at::kFloat);
    auto* to = rows.mutable_data_ptr<float>();
    for (int64_t head = 0; head < layout_.heads; ++head) {
      for (int64_t number = keys_ - count; number < keys_; ++number, to += layout_.head_dim)
        ops::read_row(values ? value<int8_t>(head, number) : key<int8_t>(head, number), layout_.head_dim, layout_.width,
                      to);
    }
    return rows;
  }
  const std::byte* data = (values ? v_ : k_).as<std::byte>() +
                          (first_ + keys_ - missing_ - count) * layout_.bytes_of_row();
  return at::from_blob(const_cast<std::byte*>(data), {1, layout_.heads, count, layout_.head_dim},
                       {0, capacity_ * layout_.width, layout_.width, 1}, type)
      .to(at::kFloat)
      .contiguous()
      .clone();
}

void KeyRowsState::take(const at::Tensor& k, const at::Tensor& v, int64_t count) {
  reserve(count);
  const auto rows = [&](const at::Tensor& heads) {  // [1,H,M,d] -> [count,H*d]
    return plain_numbers(heads.narrow(2, heads.size(2) - count, count).transpose(1, 2));
  };
  const std::vector<float> keys = rows(k), values = rows(v);
  const int64_t all = layout_.heads * layout_.head_dim;
  for (int64_t i = 0; i < count; ++i) store(keys_ + i, keys.data() + i * all, values.data() + i * all);
  append(count);
}

int64_t KeyRowsState::num_bytes() const { return 2 * (keys_ - missing_) * layout_.heads * layout_.bytes_in_use(); }

}  // namespace mnemo::core
