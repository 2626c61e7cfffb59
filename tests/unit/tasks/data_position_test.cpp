#include "tasks/data_position.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::tasks {
namespace {

using test::expect_error;

TEST(DataPosition, IsANumberOrNamedInTheError) {
  at::Tensor saved = at::full({1}, 7, at::kLong);
  const auto find = [&](const std::string& name) { return name == "next_batch" ? saved : at::Tensor(); };
  EXPECT_EQ(saved_number(find, "next_batch"), 7);
  EXPECT_EQ(saved_next_batch(find), 7);
  expect_error<base::InputError>([&] { saved_number(find, "fingerprint"); },
                                 {"data position: expected \"fingerprint\" int64 [1]"});
  saved = at::full({1}, -1, at::kLong);
  EXPECT_EQ(saved_number(find, "next_batch"), -1);
  expect_error<base::InputError>([&] { saved_next_batch(find); },
                                 {"data position: \"next_batch\": expected 0 or more, found -1"});
  for (const at::Tensor& wrong : {at::full({2}, 7, at::kLong), at::full({1}, 7, at::kInt), at::full({1}, 7.0)}) {
    saved = wrong;
    expect_error<base::InputError>([&] { saved_next_batch(find); },
                                   {"data position: expected \"next_batch\" int64 [1]"});
  }
}

}  // namespace
}  // namespace mnemo::tasks
