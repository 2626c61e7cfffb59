#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/file_io.h"
#include "core/mapped_tensor.h"
#include "weights/map_safetensors.h"
#include "weights/safetensors.h"
#include "weights/safetensors_header.h"

namespace mnemo::weights {
namespace {

class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : file_(path) {}
  uint64_t size() const override { return file_.size(); }

  std::string_view window(uint64_t offset) override {
    // Small files stay cheap: the buffer is never larger than the rest of the file.
    const auto n = static_cast<size_t>(std::min<uint64_t>(kWindow, file_.size() - offset));
    if (!buffer_) buffer_ = std::make_unique<char[]>(static_cast<size_t>(std::min<uint64_t>(kWindow, file_.size())));
    file_.read_at(offset, buffer_.get(), n);
    return {buffer_.get(), n};
  }

  void read(uint64_t offset, void* to, size_t n) override { file_.read_at(offset, to, n); }

 private:
  static constexpr uint64_t kWindow = 1 << 16;
  base::FileReader file_;
  std::unique_ptr<char[]> buffer_;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  std::string_view window(uint64_t offset) override { return bytes_.substr(static_cast<size_t>(offset)); }
  void read(uint64_t offset, void* to, size_t n) override { std::memcpy(to, bytes_.data() + offset, n); }

 private:
  std::string_view bytes_;
};

// Rule 15, in slices: a mask of the whole tensor would need memory beyond the promised bound.
void check_finite(const at::Tensor& tensor, std::string_view file, std::string_view name) {
  if (!tensor.is_floating_point() && !tensor.is_complex()) return;
  constexpr int64_t kSlice = 1 << 14;
  const at::Tensor flat = tensor.reshape({-1});
  for (int64_t at = 0; at < flat.numel(); at += kSlice) {
    at::Tensor slice = flat.narrow(0, at, std::min(kSlice, flat.numel() - at));
    if (slice.element_size() == 1) slice = slice.to(at::kFloat);
    const at::Tensor finite = at::isfinite(slice);
    if (finite.all().item<bool>()) continue;
    const int64_t first = at + finite.logical_not().nonzero()[0].item<int64_t>();
    broken_rule(file, 15, "tensor '{}' holds {} at element {}", base::printable(name),
                flat[first].to(at::kDouble).isnan().item<bool>() ? "NaN" : "infinity", first);
  }
}

// Values other than 0 and 1 in a C++ bool are undefined behaviour.
void normalise_bools(at::Tensor& tensor) {
  auto* p = static_cast<uint8_t*>(tensor.data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) p[i] = p[i] != 0;
}

/// Whether a tensor may stay where it is in the file; its values must be aligned, and those of bool checked.
bool stays(const HeaderEntry& entry, uint64_t data_start) {
  const at::ScalarType type = *entry.dtype->type;
  return entry.end - entry.begin >= kMappedBytes && type != at::kBool &&
         (data_start + entry.begin) % c10::elementSize(type) == 0;
}

/// mapped: the same file; null: every tensor is read.
TensorFile read(ByteSource& source, const std::string& file, const ReadOptions& options,
                const std::shared_ptr<const base::MappedFile>& mapped = nullptr) {
  Header header = parse_header(source, file, options.limits);
  TensorFile result;
  result.metadata = std::move(header.metadata);
  result.tensors.reserve(header.entries.size());
  for (HeaderEntry& entry : header.entries) {
    if (mapped && stays(entry, header.data_start)) {
      result.tensors.emplace_back(std::move(entry.name), core::mapped_tensor(mapped, header.data_start + entry.begin,
                                                                             entry.shape, *entry.dtype->type));
      continue;
    }
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(*entry.dtype->type).device(at::kCPU));
    if (entry.end > entry.begin)
      source.read(header.data_start + entry.begin, tensor.data_ptr(), static_cast<size_t>(entry.end - entry.begin));
    if (tensor.scalar_type() == at::kBool) normalise_bools(tensor);
    if (options.check_finite) check_finite(tensor, file, entry.name);
    result.tensors.emplace_back(std::move(entry.name), std::move(tensor));
  }
  return result;
}

}  // namespace

const at::Tensor* TensorFile::find(std::string_view name) const {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

const at::Tensor& TensorFile::at(std::string_view name, std::string_view where) const {
  const at::Tensor* tensor = find(name);
  base::require(tensor != nullptr, "{}: has no tensor '{}' among its {}", base::printable(where, 400),
                base::printable(name), tensors.size());
  return *tensor;
}

TensorFile read_safetensors(const std::string& path, const ReadOptions& options) {
  FileSource source(path);
  return read(source, path, options);
}

TensorFile map_safetensors(const std::string& path) {
  FileSource source(path);
  auto mapped = std::make_shared<const base::MappedFile>(path);
  base::require(mapped->size() == source.size(), "{}: changed while it was read: {} bytes, then {}",
                base::printable(path, 400), source.size(), mapped->size());
  return read(source, path, {}, mapped);
}

TensorFile read_safetensors(std::string_view bytes, const std::string& name, const ReadOptions& options) {
  MemorySource source(bytes);
  return read(source, name, options);
}

}  // namespace mnemo::weights
