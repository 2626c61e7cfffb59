#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/types.h>

#include "ops/cuda.h"

namespace mnemo::ops::cuda {
namespace {

/// A stream of the pool, behind what the usual stream has to do; the usual one then waits for it.
class Beside {
 public:
  Beside() : usual_(c10::cuda::getCurrentCUDAStream()), own_(c10::cuda::getStreamFromPool()), guard_(own_) {
    wait(usual_, own_);
  }
  ~Beside() { wait(own_, usual_); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  static void wait(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& then) {
    c10::Event event(c10::DeviceType::CUDA);
    event.record(first);
    event.block(then);
  }
  c10::cuda::CUDAStream usual_, own_;
  c10::cuda::CUDAStreamGuard guard_;
};

class Recorded final : public Graph {
 public:
  explicit Recorded(const std::function<void()>& work) {
    const Beside beside;
    graph_.capture_begin();
    work();
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<Graph> Graph::record(const std::function<void()>& work) { return std::make_unique<Recorded>(work); }

void Graph::run_beside(const std::function<void()>& work, at::Device device) {
  if (device.is_cpu()) return work();
  const Beside beside;
  work();
}

}  // namespace mnemo::ops::cuda
