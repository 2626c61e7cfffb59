#include "core/mapped_tensor.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"

namespace mnemo::core {
namespace {

using Holder = std::shared_ptr<const base::MappedFile>;

/// Its address marks the storages of mapped tensors.
void release(void* holder) { delete static_cast<Holder*>(holder); }

}  // namespace

at::Tensor mapped_tensor(Holder file, uint64_t offset, at::IntArrayRef sizes, at::ScalarType type) {
  const auto bytes = static_cast<uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  base::ensure(offset <= file->size() && bytes <= file->size() - offset, "a mapped tensor lies outside its file");
  auto* start = const_cast<char*>(file->bytes().data() + offset);
  return at::for_blob(start, sizes)
      .context(new Holder(std::move(file)), &release)
      .options(at::TensorOptions().dtype(type).device(at::kCPU))
      .make_tensor();
}

bool is_mapped(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.storage().data_ptr().get_deleter() == &release;
}

void take_values(const at::Tensor& target, const at::Tensor& source) {
  const bool stays = is_mapped(source) && source.scalar_type() == target.scalar_type() && target.is_cpu();
  at::Tensor handle = target;  // of the same tensor
  if (stays) {
    handle.set_data(source);
  } else {
    handle.copy_(source);
  }
}

at::Tensor owned(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  if (!is_mapped(plain)) return plain;
  at::Tensor copy = at::empty_like(plain);
  constexpr int64_t kSlice = int64_t{1} << 22;  // more would be held twice
  const at::Tensor from = plain.view(-1), to = copy.view(-1);
  for (int64_t at = 0; at < from.numel(); at += kSlice) {
    const int64_t count = std::min(kSlice, from.numel() - at);
    to.narrow(0, at, count).copy_(from.narrow(0, at, count));
    forget_pages(plain);
  }
  return copy;
}

void forget_pages(const at::Tensor& tensor) {
  if (!is_mapped(tensor)) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto start = reinterpret_cast<uintptr_t>(tensor.storage().data()), end = start + tensor.storage().nbytes();
  const uintptr_t first = start / page * page;
  ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);  // only a hint: the mapping is read-only
}

}  // namespace mnemo::core
