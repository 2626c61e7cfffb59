#include <gtest/gtest.h>
#include <torch/types.h>

#include <c10/core/CachingDeviceAllocator.h>

#include "experiment/device.h"
#include "runs/run_page.h"

namespace mnemo::experiment {
namespace {

/// Counts as the allocator of a GPU does; allocates nothing.
class CountingAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {}
  bool initialized() override { return peak > 0; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.reserved_bytes[0].peak = device == 1 ? peak : 1;
    stats.reserved_bytes[1].peak = 2;  // of small blocks alone
    stats.allocated_bytes[0].peak = 3;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

  int64_t peak = 0;
};

TEST(DeviceMemory, IsWhatTheAllocatorOfThatDeviceHeld) {
  EXPECT_EQ(peak_device_memory(at::kCPU), 0);
  static CountingAllocator allocator;
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator);
  const at::Device device("privateuseone:1");
  EXPECT_EQ(peak_device_memory(device), 0) << "before the first allocation";
  allocator.peak = 3'000'000'000;
  EXPECT_EQ(peak_device_memory(device), 3'000'000'000);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, nullptr);
}

TEST(DeviceMemory, StandsOnThePageOfATraining) {
  runs::RunPageContent content;
  content.peak_memory = 1'250'000'000;
  const std::string own = runs::run_page(content);
  EXPECT_NE(own.find("<dt>peak memory</dt><dd>1.25 GB"), std::string::npos);
  content.device = "cuda:1";
  content.peak_device_memory = 3'000'000'000;
  const std::string both = runs::run_page(content);
  EXPECT_NE(both.find("<dt>peak memory of the processor</dt><dd>1.25 GB"), std::string::npos);
  EXPECT_NE(both.find("<dt>peak memory of cuda:1</dt><dd>3.00 GB"), std::string::npos);
}

}  // namespace
}  // namespace mnemo::experiment
