#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cstdlib>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Test programs run in parallel; tests about threads set their own number. MNEMO_TEST_THREADS reruns the same tests
  // with several threads.
  const char* threads = std::getenv("MNEMO_TEST_THREADS");
  at::set_num_threads(threads == nullptr ? 1 : std::atoi(threads));
  return RUN_ALL_TESTS();
}
