#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "../support/temporary_folder.h"
#include "options_check.h"
#include "weights/sharded.h"

namespace {

/// A folder with two files of weights, for an index.
const mnemo::test::TemporaryFolder& folder() {
  using namespace mnemo;
  static const test::TemporaryFolder made;
  static const bool written = [] {
    weights::write_safetensors(made / "a.safetensors", {{"a.weight", at::zeros({2, 3})}, {"a.bias", at::zeros({2})}});
    weights::write_safetensors(made / "b.safetensors", {{"b.weight", at::zeros({2, 3})}});
    return true;
  }();
  fuzz::demand(written, "a folder of weights");
  return made;
}

}  // namespace

/// The index of weights in several files: the tensors of all of them, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string path = folder() / weights::kIndexFile;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  fuzz::only_input_errors([&] {
    const std::size_t tensors = weights::read_sharded(path).tensors.size();
    fuzz::demand(tensors >= 1 && tensors <= 3, "the tensors of the files");
  });
  return 0;
}
