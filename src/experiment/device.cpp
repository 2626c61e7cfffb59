#include "experiment/device.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "core/model.h"
#include "ops/cuda.h"

namespace mnemo::experiment {

at::Device device_named(const std::optional<std::string>& name, const distributed::Group* ranks) {
  constexpr std::string_view kCuda = "cuda";
  if (!name || *name == "cpu") return at::kCPU;
  const std::string_view number = name->starts_with("cuda:") ? std::string_view(*name).substr(kCuda.size() + 1) : "0";
  int64_t index = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool known = (*name == kCuda || name->starts_with("cuda:")) && error == std::errc() &&
                     end == number.data() + number.size();
  base::require(known && index >= 0, "--device: expected cpu, cuda or cuda:N, found '{}'", base::printable(*name));
  base::require(ops::cuda::compiled(), "--device {}: this build has no CUDA: configure with -DMNEMO_CUDA=ON", *name);
  const int64_t devices = ops::cuda::devices();
  base::require(devices > 0, "--device {}: no CUDA device found (or its driver is missing)", *name);
  if (ranks != nullptr && ranks->place().local_size > 1) {
    base::require(*name == kCuda,
                  "--device: each of the {} ranks on this machine has a GPU of its own; expected cuda, "
                  "found {}",
                  ranks->place().local_size, *name);
    base::require(ranks->place().local_size <= devices,
                  "--device cuda: expected a GPU for each of the {} ranks on this "
                  "machine, found {}",
                  ranks->place().local_size, devices);
    index = ranks->place().local_rank;
  }
  base::require(index < devices, "--device: expected cuda:0 to cuda:{}, found {}", devices - 1, *name);
  at::globalContext().setAllowTF32CuDNN(false);  // LibTorch's default rounds operands of convolutions to 10 bits
  return {at::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

void move_to(core::Model& model, at::Device device) {
  if (model.parameters().all().front().tensor.device() != device)
    model.parameters().to(model.parameters().all().front().tensor.scalar_type(), device);
}

int64_t peak_device_memory(at::Device device) {
  if (device.is_cpu()) return 0;
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  if (!allocator.initialized()) return 0;
  const c10::DeviceIndex index = device.has_index() ? device.index() : c10::DeviceIndex{0};
  return allocator.getDeviceStats(index)
      .reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
      .peak;
}

std::string describe_cuda() {
  if (!ops::cuda::compiled()) return "no CUDA";
  const int64_t devices = ops::cuda::devices();
  return fmt::format("CUDA kernels, {}", devices == 0   ? "no device"
                                         : devices == 1 ? "one device"
                                                        : fmt::format("{} devices", devices));
}

}  // namespace mnemo::experiment
