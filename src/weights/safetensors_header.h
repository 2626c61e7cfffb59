#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"
#include "weights/safetensors_format.h"

namespace mnemo::weights {

/// Random access to the bytes of a file, on disk or in memory, so that a header of 100 MB is never held in memory as a
/// whole.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;

  /// One or more bytes starting at `offset` (< size()); valid until the next call.
  virtual std::string_view window(uint64_t offset) = 0;

  /// Fills `n` bytes from `offset`.
  virtual void read(uint64_t offset, void* to, size_t n) = 0;
};

/// One tensor as the header describes it, checked against rules 7 to 10.
struct HeaderEntry {
  std::string name;
  const Dtype* dtype = nullptr;
  c10::SmallVector<int64_t, 4> shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  // in the order of the header
  Metadata metadata;
  uint64_t data_start = 0;  // where the data starts in the file
};

/// Reads and checks the header: every rule and limit except rule 15. `file` is the name used in messages.
Header parse_header(ByteSource& source, std::string_view file, const SafetensorsLimits& limits);

/// Maximum number of tensors in a file of `file_bytes`: 1,536, plus one for each 8 KiB. A tensor costs about 600
/// bytes beyond its data (name, sizes, storage), so the first ones stay below 1 MB and the others below 1/13 of the
/// file.
uint64_t affordable_tensors(uint64_t file_bytes);

/// Size of a tensor in bytes at `bits` per element, or nothing if a product overflows int64 (zeros count as ones, so
/// that strides fit too) or the last byte is incomplete.
std::optional<uint64_t> tensor_bytes(c10::ArrayRef<int64_t> shape, uint32_t bits);

}  // namespace mnemo::weights
