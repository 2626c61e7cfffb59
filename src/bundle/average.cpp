#include "bundle/average.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "bundle/bundle.h"
#include "bundle/load.h"
#include "core/last_inputs.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace mnemo::bundle {

ModelFolder average_of(const std::string& run, int64_t count) {
  base::require(count >= 1, "convert: --last: expected at least 1, found {}", count);
  const std::vector<weights::CheckpointInfo> checkpoints = weights::latest_checkpoints(run, count);
  base::require(static_cast<int64_t>(checkpoints.size()) == count,
                "{}: expected {} good checkpoints to average, found {}; train.save_every writes them, train.keep_last "
                "says how many are kept",
                run, count, checkpoints.size());
  std::vector<int64_t> steps;
  for (const weights::CheckpointInfo& checkpoint : checkpoints) steps.push_back(checkpoint.step);
  base::log_info("convert: the mean of the checkpoints of steps {} (a run keeps its best one, too)",
                 fmt::join(steps, ", "));
  ModelFolder made;
  const std::string& newest = checkpoints.front().path;
  made.config = read_model_config(newest);
  made.vocabulary = files_beside(newest);
  std::vector<at::Tensor> sums;
  for (const weights::CheckpointInfo& checkpoint : checkpoints) {
    const std::string path = weights_file(checkpoint.path);
    const weights::TensorFile file = weights::read_safetensors(path);
    if (sums.empty()) {
      made.weights = file;
      for (const auto& [name, tensor] : file.tensors) sums.push_back(tensor.to(at::kDouble));
      continue;
    }
    base::require(file.tensors.size() == sums.size(), "{}: expected {} tensors, as in {}, found {}", path, sums.size(),
                  newest, file.tensors.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto& [name, first] = made.weights.tensors[i];
      const at::Tensor& tensor = file.at(name, path);
      base::require(tensor.sizes() == first.sizes() && tensor.scalar_type() == first.scalar_type(),
                    "{}: {}: expected {} {}, as in {}, found {} {}", path, name, c10::toString(first.scalar_type()),
                    c10::str(first.sizes()), newest, c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
      sums[i] += tensor;
    }
  }
  const std::set<std::string> newest_counts = core::last_inputs(*load_any(newest).model);
  for (size_t i = 0; i < sums.size(); ++i) {
    auto& [name, tensor] = made.weights.tensors[i];
    if (tensor.is_floating_point() && !newest_counts.contains(name))
      tensor = (sums[i] / static_cast<double>(count)).to(tensor.scalar_type());
  }
  return made;
}

}  // namespace mnemo::bundle
