// Any bytes: the reader returns tensors or throws InputError, and what it returns can be written and read again.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "weights/safetensors.h"

namespace {

using namespace mnemo::weights;

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Longer inputs may have so many tensors that, without the spaces in the header, the file would exceed the cap.
  if (size > (1U << 16)) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  TensorFile file;
  try {
    file = read_safetensors(bytes, "input");
  } catch (const mnemo::base::InputError&) {
    return 0;
  }
  std::size_t total = 0;
  for (const auto& [name, tensor] : file.tensors) total += tensor.nbytes();
  check(total <= size);
  const TensorFile again = read_safetensors(encode_safetensors(file.tensors, file.metadata), "again");
  check(again.metadata == file.metadata && again.tensors.size() == file.tensors.size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    check(again.tensors[i].first == file.tensors[i].first);
    check(again.tensors[i].second.sizes() == file.tensors[i].second.sizes());
    check(again.tensors[i].second.scalar_type() == file.tensors[i].second.scalar_type());
  }
  return 0;
}
