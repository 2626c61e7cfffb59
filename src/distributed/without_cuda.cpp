#ifdef MNEMO_GLOO

#include <torch/types.h>

#include "base/error.h"
#include "distributed/device_backend.h"

namespace mnemo::distributed {

c10::intrusive_ptr<c10d::Backend> make_device_backend(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                                      std::chrono::milliseconds) {
  base::input_error("several processes: this build has no CUDA: configure with -DMNEMO_CUDA=ON");
}

}  // namespace mnemo::distributed

#endif
