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

  /// The tensor of that name, or nullptr.
  const at::Tensor* find(std::string_view name) const;

  /// The tensor of that name. Throws InputError that names the nearest thing wrong: `where` and the missing name.
  const at::Tensor& at(std::string_view name, std::string_view where) const;
};

/// Caps that a reader sets on top of the format's rules. Writer and reader share the defaults, so what is written can
/// be read.
struct SafetensorsLimits {
  /// Most tensors in one file. Small files are held to less: tensors cost memory beyond their data, so beyond 1,536 a
  /// file needs 8 KiB of its size for each further one.
  uint64_t max_tensors = 65'536;
  /// Longest tensor name or metadata key, bytes.
  uint64_t max_name_bytes = 1'024;
  /// Most dimensions of a tensor.
  uint64_t max_rank = 16;
  /// Most metadata entries.
  uint64_t max_metadata_entries = 2'048;
};

struct ReadOptions {
  SafetensorsLimits limits;
  /// Refuse NaN and infinity (rule 15). Off: they are values like any other.
  bool check_finite = false;
};

/// Reads a safetensors file; every tensor is a fresh contiguous CPU tensor with ATen's alignment, so results computed
/// from it do not depend on where it lay in the file. All 16 loader rules and the caps are checked before any tensor is
/// allocated; the memory taken is at most the file's size + 1 MB (+ 1/16 of the file's size, when it holds more than
/// 1,536 tensors), whatever the file says.
/// dtypes: BOOL U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64 F8_E4M3 F8_E5M2 F8_E8M0 C64; a BOOL byte other than 0
/// becomes true. Throws InputError "FILE: safetensors rule N (words): what was found".
TensorFile read_safetensors(const std::string& path, const ReadOptions& options = {});

/// The same from memory; `name` stands for the file in messages.
TensorFile read_safetensors(std::string_view bytes, const std::string& name, const ReadOptions& options = {});

/// Writes a safetensors file atomically (temporary file, fsync, rename, fsync of the folder). The header keeps the
/// order given and is padded with spaces to 8 bytes; data lies by falling element size, so that every tensor is
/// aligned. The same input gives the same bytes. Tensors may lie anywhere and in any layout of strides; they are copied
/// one at a time. Throws InputError for a name given twice, a name or text that is not UTF-8, a dtype the format lacks,
/// something beyond the caps, and for a full disk or an unwritable folder (naming the path; the old file stays as it
/// was).
void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// The same bytes as a string.
std::string encode_safetensors(const NamedTensors& tensors, const Metadata& metadata = {});

}  // namespace mnemo::weights
