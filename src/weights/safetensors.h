#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnemo::weights {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using Metadata = std::map<std::string, std::string>;

/// The content of a safetensors file: named tensors in the order of its header, and the texts of `__metadata__`.
struct TensorFile {
  NamedTensors tensors;
  Metadata metadata;

  /// The tensor with that name, or nullptr.
  const at::Tensor* find(std::string_view name) const;

  /// The tensor with that name. Throws InputError that names `where` and the missing tensor.
  const at::Tensor& at(std::string_view name, std::string_view where) const;
};

/// Limits of the reader in addition to the rules of the format. Writer and reader share the defaults, so everything
/// written can be read.
struct SafetensorsLimits {
  /// Maximum number of tensors in one file. Small files are limited further: tensors cost memory beyond their data, so
  /// above 1,536 a file needs 8 KiB for each additional one.
  uint64_t max_tensors = 65'536;
  /// Longest tensor name or metadata key, bytes.
  uint64_t max_name_bytes = 1'024;
  /// Maximum number of dimensions of a tensor.
  uint64_t max_rank = 16;
  /// Maximum number of metadata entries.
  uint64_t max_metadata_entries = 2'048;
};

struct ReadOptions {
  SafetensorsLimits limits;
  /// Reject NaN and infinity (rule 15). Off: they are allowed.
  bool check_finite = false;
};

/// Reads a safetensors file; every tensor is a new contiguous CPU tensor with ATen's alignment, so results do not
/// depend on its position in the file. All 16 loader rules and the caps are checked before any tensor is allocated; the
/// memory used is at most the file's size + 1 MB (+ 1/13 of the file's size if it has more than 1,536 tensors),
/// whatever the file claims. dtypes: BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 F8_E8M0 C64; a
/// BOOL byte other than 0 becomes true. Throws InputError "FILE: safetensors rule N (words): what was found".
TensorFile read_safetensors(const std::string& path, const ReadOptions& options = {});

/// Reads a safetensors file from memory; messages call it `name`.
TensorFile read_safetensors(std::string_view bytes, const std::string& name, const ReadOptions& options = {});

/// Writes a safetensors file atomically (temporary file, fsync, rename, fsync of the folder). The header keeps the
/// given order and is padded with spaces to 8 bytes; data is sorted by decreasing element size, so that every tensor is
/// aligned. Equal input gives equal bytes. Tensors may be on any device and have any strides; they are copied one
/// at a time. Throws InputError for a duplicate name, a name or text that is not UTF-8, a dtype the format lacks,
/// anything beyond the caps, and for a full disk or an unwritable folder (naming the path; the old file is unchanged).
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// Returns the bytes that write_safetensors() writes.
std::string encode_safetensors(const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace mnemo::weights
