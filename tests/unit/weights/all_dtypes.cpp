#include "tests/unit/weights/all_dtypes.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <cstring>
#include <limits>

namespace mnemo::test {

weights::NamedTensors all_dtypes() {
  weights::NamedTensors tensors;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                          at::kFloat8_e8m0fnu, at::kComplexFloat}) {
    const at::Tensor values = at::tensor({0.0, -0.0, 1.5, -2.25, kNan, kInfinity, -kInfinity, 1e-30}, at::kDouble)
                                  .reshape({2, 4});
    tensors.emplace_back(std::string("model.") + c10::toString(type), values.to(type));
  }
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kUInt16, at::kShort, at::kUInt32, at::kInt, at::kUInt64, at::kLong}) {
    at::Tensor values = at::empty({3, 1, 2}, at::TensorOptions().dtype(type));
    auto* bytes = static_cast<unsigned char*>(values.data_ptr());
    for (size_t i = 0; i < values.nbytes(); ++i)
      bytes[i] = static_cast<unsigned char>(type == at::kBool ? i % 2 : 251 * i + 7);
    tensors.emplace_back(std::string("model.") + c10::toString(type), values);
  }
  tensors.emplace_back("scalar", at::tensor(3.5, at::kFloat));
  tensors.emplace_back("scalar.bool", at::ones({}, at::kBool));
  tensors.emplace_back("empty", at::empty({0}, at::kFloat));
  tensors.emplace_back("empty.rank3", at::empty({2, 0, 3}, at::kLong));
  tensors.emplace_back("name with \"quotes\", \\ and \xc3\xa4\xf0\x9f\x98\x80", at::arange(5, at::kShort));
  return tensors;
}

void expect_same_bytes(const weights::NamedTensors& found, const weights::NamedTensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& [name, tensor] = found[i];
    const auto& [expected_name, expected_tensor] = expected[i];
    EXPECT_EQ(name, expected_name);
    ASSERT_EQ(tensor.scalar_type(), expected_tensor.scalar_type()) << name;
    ASSERT_EQ(tensor.sizes(), expected_tensor.sizes()) << name;
    const at::Tensor dense = expected_tensor.contiguous();
    if (dense.numel() > 0) {
      EXPECT_EQ(std::memcmp(tensor.const_data_ptr(), dense.const_data_ptr(), dense.nbytes()), 0) << name;
    }
  }
}

}  // namespace mnemo::test
