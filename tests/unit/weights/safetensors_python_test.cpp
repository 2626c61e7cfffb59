// Files written here can be read by the format's Python library, and vice versa.

#include <gtest/gtest.h>

#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/weights/all_dtypes.h"
#include "weights/safetensors.h"
#include "weights/safetensors_format.h"

namespace mnemo::weights {
namespace {

std::string hex(const at::Tensor& tensor) {
  std::string out;
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

TEST(SafetensorsPython, RoundTripBothWays) {
  const std::string source_dir = MNEMO_SOURCE_DIR;
  const std::string python = source_dir + "/.deps/venv/bin/python";
  if (!base::path_exists(python)) GTEST_SKIP() << python << " is not there; scripts/setup makes it";

  const test::TemporaryFolder folder;
  const NamedTensors tensors = test::all_dtypes();
  const Metadata metadata = {{"format", "pt"}, {"quote", "\"\\/\n\x01 \xc3\xa4\xf0\x9f\x98\x80"}, {"", ""}};
  write_safetensors(folder / "ours", tensors, metadata);
  nlohmann::json description = {{"metadata", metadata}, {"tensors", nlohmann::json::array()}};
  for (const auto& [name, tensor] : tensors) {
    description["tensors"].push_back({{"name", name},
                                      {"dtype", find_dtype(tensor.scalar_type())->name},
                                      {"shape", tensor.sizes().vec()},
                                      {"hex", hex(tensor)}});
  }
  base::write_file_atomic(folder / "description", description.dump());

  const std::string command = fmt::format("'{}' '{}/tests/python/safetensors_round_trip.py' '{}' '{}' '{}' > '{}' 2>&1",
                                          python, source_dir, folder / "ours", folder / "description",
                                          folder / "theirs", folder / "log");
  ASSERT_EQ(::system(command.c_str()), 0) << base::read_file(folder / "log");

  const TensorFile theirs = read_safetensors(folder / "theirs");
  EXPECT_EQ(theirs.metadata, metadata);
  NamedTensors in_our_order;
  for (const auto& [name, tensor] : tensors) in_our_order.emplace_back(name, theirs.at(name, "theirs"));
  EXPECT_EQ(theirs.tensors.size(), tensors.size());
  test::expect_same_bytes(in_our_order, tensors);

  const TensorFile arrays = read_safetensors(folder / "theirs.numpy");
  EXPECT_EQ(arrays.at("scalar", "arrays").item<int64_t>(), 7);
  EXPECT_EQ(arrays.at("matrix", "arrays")[1][2].item<float>(), 5.0F);
}

}  // namespace
}  // namespace mnemo::weights
