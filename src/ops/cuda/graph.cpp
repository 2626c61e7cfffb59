#include <torch/types.h>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <map>
#include <memory>

#include "ops/cuda.h"

namespace mnemo::ops::cuda {
namespace {

/// Ends a recording that has failed, and gives its memory back, as far as LibTorch lets it: of its versions some leave
/// the pools to the caller if the recording itself was refused, others release them with the graph, and a pool that is
/// released twice ends the process.
void abandon(at::cuda::CUDAGraph& graph, c10::DeviceIndex device, c10::MempoolId_t pool) {
  namespace on_device = c10::cuda::CUDACachingAllocator;
  at::HostAllocator* on_host = at::getHostAllocator(at::kCUDA);
  const auto attempt = [](const auto& step) {
    try {
      step();
    } catch (const std::exception&) {  // it was done already, or cannot be
    }
  };
  attempt([&] { graph.capture_end(); });
  attempt([&] { graph.reset(); });
  attempt([&] { on_device::endAllocateToPool(device, pool); });
  attempt([&] { on_host->end_allocate_to_pool(pool); });
  attempt([&] {
    if (on_device::getPoolUseCount(device, pool) == 0) return;
    on_device::releasePool(device, pool);
    on_host->release_pool(pool);
  });
  (void)cudaGetLastError();
  // Before LibTorch 2.13 only a recording that ends well lets random numbers be drawn outside of one again.
  attempt([&] {
    const at::Tensor one = at::zeros({1}, at::device(at::Device(at::kCUDA, device)));
    at::cuda::CUDAGraph small;
    small.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    one.zero_();
    small.capture_end();
  });
}

/// The stream that this thread records on, since the default one cannot be recorded. Libraries have a workspace for
/// each.
c10::cuda::CUDAStream side_stream(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  return streams.try_emplace(device, c10::cuda::getStreamFromPool(false, device)).first->second;
}

}  // namespace

std::function<void()> recorded(at::Device device, const std::function<void()>& work) {
  const c10::cuda::CUDAGuard on_device(device);
  const c10::DeviceIndex index = c10::cuda::current_device();
  c10::cuda::getCurrentCUDAStream(index).synchronize();
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  {
    const c10::cuda::CUDAStream side = side_stream(index);
    const c10::cuda::CUDAStreamGuard on_side(side);
    work();  // libraries make their handles and workspaces of the stream now
    side.synchronize();
    const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
    try {
      graph->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      work();
      graph->capture_end();
    } catch (...) {
      const std::exception_ptr why = std::current_exception();
      abandon(*graph, index, pool);
      std::rethrow_exception(why);
    }
  }
  return [graph, device] {
    const c10::cuda::CUDAGuard on_device(device);
    graph->replay();
  };
}

}  // namespace mnemo::ops::cuda
