#include <gtest/gtest.h>

#include <ATen/Parallel.h>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Tests run side by side; one that is about threads sets its own number.
  at::set_num_threads(1);
  return RUN_ALL_TESTS();
}
