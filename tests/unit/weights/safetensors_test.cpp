#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <cstring>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/weights/all_dtypes.h"
#include "weights/safetensors.h"

namespace mnemo::weights {
namespace {

using base::InputError;
using test::expect_error;

TEST(Safetensors, RoundTripOfEveryDtypeIsBitwise) {
  const test::TemporaryFolder folder;
  const NamedTensors tensors = test::all_dtypes();
  const Metadata metadata = {{"format", "pt"}, {"quote", "\"\\/\b\f\n\r\t\x01 \xc3\xa4 \xf0\x9f\x98\x80"}, {"", ""}};
  write_safetensors(folder / "a.safetensors", tensors, metadata);
  const TensorFile file = read_safetensors(folder / "a.safetensors");
  EXPECT_EQ(file.metadata, metadata);
  test::expect_same_bytes(file.tensors, tensors);
  EXPECT_EQ(base::read_file(folder / "a.safetensors"), encode_safetensors(tensors, metadata));
  test::expect_same_bytes(read_safetensors(encode_safetensors(tensors), "memory").tensors, tensors);
}

TEST(Safetensors, HeaderAndTensorsAreAligned) {
  const std::string bytes = encode_safetensors(
      {{"b", at::ones({3}, at::kByte)}, {"d", at::ones({1}, at::kDouble)}, {"h", at::ones({1}, at::kHalf)}});
  const uint64_t header = static_cast<unsigned char>(bytes[0]) + 256U * static_cast<unsigned char>(bytes[1]);
  EXPECT_EQ(header % 8, 0U);
  const std::string json = bytes.substr(8, header);
  EXPECT_EQ(
      json.substr(0, json.find_last_not_of(' ') + 1),
      R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[10,13]},"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[8,10]}})");
  EXPECT_EQ(bytes.size(), 8 + header + 13);
}

TEST(Safetensors, NothingAtAllIsAFile) {
  const TensorFile file = read_safetensors(encode_safetensors({}), "memory");
  EXPECT_TRUE(file.tensors.empty());
  EXPECT_TRUE(file.metadata.empty());
}

TEST(Safetensors, ViewsAndGradientsAreWrittenAsPlainTensors) {
  const at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
  const at::Tensor leaf = at::randn({2, 2}).set_requires_grad(true);
  const at::Tensor complex = at::randn({3}, at::kComplexFloat);
  const NamedTensors tensors = {{"transposed", base.t()},
                                {"strided", base.slice(1, 0, 4, 2)},
                                {"expanded", base[0][1].expand({5})},
                                {"leaf", leaf},
                                {"conjugate", complex.conj()}};
  const TensorFile file = read_safetensors(encode_safetensors(tensors), "memory");
  for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(file.at(name, "memory"), tensor.detach())) << name;
  EXPECT_FALSE(file.at("leaf", "memory").requires_grad());
}

TEST(Safetensors, WriterRefusesWhatTheReaderWould) {
  const at::Tensor one = at::ones({1});
  const auto refuse = [&](const NamedTensors& tensors, const Metadata& metadata,
                          std::initializer_list<std::string> parts) {
    const test::TemporaryFolder folder;
    const std::string path = folder / "a.safetensors";
    base::write_file_atomic(path, "old");
    expect_error<InputError>([&] { write_safetensors(path, tensors, metadata); }, parts);
    EXPECT_EQ(base::read_file(path), "old");
    EXPECT_EQ(base::list_folder(folder.path()), std::vector<std::string>{"a.safetensors"});
  };
  refuse({{"a", one}, {"a", one}}, {}, {"a.safetensors", "rule 6", "'a' appears twice"});
  refuse({{"__metadata__", one}}, {}, {"rule 13"});
  refuse({{"a\xff", one}}, {}, {"rule 4", "a\\xff"});
  refuse({{"a", one}}, {{"k", "\xff"}}, {"rule 4"});
  refuse({{"a", one}}, {{"\xff", "v"}}, {"rule 4"});
  refuse({{"a", at::Tensor()}}, {}, {"'a' is undefined"});
  refuse({{"a", at::ones({1}, at::kComplexDouble)}}, {}, {"rule 8", "ComplexDouble"});
  refuse({{"a", at::ones({2, 2}).to_sparse()}}, {}, {"'a' is not a dense one"});
  refuse({{std::string(1025, 'n'), one}}, {}, {"cap (length)", "1025"});
  refuse({{"a", one.expand(std::vector<int64_t>(17, 1))}}, {}, {"cap (rank)", "17"});
  NamedTensors many;
  for (int i = 0; i < 2000; ++i) many.emplace_back(std::to_string(i), one);
  refuse(many, {}, {"cap (tensor count)", "2000"});
  Metadata texts;
  for (int i = 0; i < 2049; ++i) texts[std::to_string(i)] = "";
  refuse({}, texts, {"cap (metadata count)", "2049"});
}

TEST(Safetensors, MissingTensorAndMissingFileAreNamed) {
  const TensorFile file = read_safetensors(encode_safetensors({{"a", at::ones({1})}}), "memory");
  EXPECT_EQ(file.find("b"), nullptr);
  expect_error<InputError>([&] { file.at("b", "model.safetensors"); }, {"model.safetensors", "'b'"});
  expect_error<InputError>([&] { read_safetensors("/nowhere/a.safetensors"); },
                           {"/nowhere/a.safetensors", "No such file"});
  expect_error<InputError>([&] { read_safetensors("/tmp"); }, {"/tmp", "a folder"});
  expect_error<InputError>([&] { read_safetensors("/dev/zero"); }, {"/dev/zero", "a device"});
}

}  // namespace
}  // namespace mnemo::weights
