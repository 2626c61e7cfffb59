#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cstdlib>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Programs run side by side; one that is about threads sets its own number. The same tests once more with several:
  // MNEMO_TEST_THREADS.
  const char* threads = std::getenv("MNEMO_TEST_THREADS");
  at::set_num_threads(threads == nullptr ? 1 : std::atoi(threads));
  return RUN_ALL_TESTS();
}
