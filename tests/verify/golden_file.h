#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/node.h"
#include "layers/parameters.h"
#include "tests/verify/golden.h"
#include "weights/safetensors.h"

namespace mnemo::verify {

/// A parsed golden file ("mnemo-golden/1"). It remembers which tensors were asked for: see require_all_used.
class GoldenFile {
 public:
  /// Loads the tensors onto the device.
  GoldenFile(const std::string& path, at::Device device);

  const std::string& path() const { return path_; }
  const base::Node& config() const { return config_; }
  at::Device device() const { return device_; }
  bool training() const { return training_; }
  double tolerance() const { return tolerance_; }
  const std::string& what() const { return what_; }
  /// The metadata under that key as JSON; a null node if there is none.
  base::Node metadata(const std::string& key) const;
  int64_t num_steps() const;
  bool contains(const std::string& name) const { return file_.find(name) != nullptr; }
  /// The tensor of that name, or an undefined tensor. Ask only for what is then used.
  at::Tensor find(const std::string& name) const;
  at::Tensor step(int64_t step, const std::string& rest) const;
  /// (rest of the name, tensor) for every tensor whose name starts with the prefix.
  std::vector<std::pair<std::string, at::Tensor>> under(const std::string& prefix) const;
  /// Limits on what its config may allocate: see weights::budget_of.
  layers::Budget budget() const;
  /// param.*, to be loaded whole.
  weights::TensorFile parameters() const;
  /// Copies param.* into the parameters, as float64 on the device. Every tensor on either side must be used exactly
  /// once. name_in_file: the file's name of a parameter, if it has names of its own.
  void load_parameters(const layers::ParameterSet& into,
                       const std::function<std::string(const std::string&)>& name_in_file = {}) const;
  /// Throws InputError that lists the tensors without a part in the result: inputs (param.*, buffer.*, state.init.*,
  /// step.K.input.*, step.K.cotangent.*) that nobody asked for, and results that are not among the compared.
  void require_all_used(const std::set<std::string>& compared) const;

 private:
  std::string path_, what_;
  weights::TensorFile file_;
  at::Device device_;
  base::Node config_;
  bool training_ = false;
  double tolerance_ = 0.0;
  mutable std::set<std::string> asked_;
};

/// Adds a tensor's error to the group of that name and tolerance.
void count_error(GoldenReport& report, const std::string& group, double tolerance, const std::string& name,
                 double error);

/// Collects differences by group.
class GoldenComparison {
 public:
  explicit GoldenComparison(const GoldenFile& file);
  /// For a file whose metadata has `case`, `tolerance` and this format. Throws InputError otherwise.
  GoldenComparison(const std::string& path, const weights::Metadata& metadata, const std::string& format);
  /// An undefined `found` counts as zeros (a gradient that was not needed). tolerance: for this group, if it differs
  /// from the file's.
  void compare(const std::string& group, const std::string& name, const at::Tensor& expected, const at::Tensor& found,
               std::optional<double> tolerance = {});
  /// The report. Throws InputError if the golden file has a tensor that had no part in it.
  GoldenReport take();

 private:
  GoldenReport report_;
  const GoldenFile* file_ = nullptr;
  std::set<std::string> compared_;
};

/// kind attention; below, kinds layer_stack and model.
GoldenReport verify_attention(const GoldenFile& file);
GoldenReport verify_model(const GoldenFile& file);
/// kind model: a ViT with learnable-memory tasks, of which `train` in its config lists what is trained (default: all).
GoldenReport verify_tasks(const GoldenFile& file);
/// kind model with an encoder and a decoder: a translation model, or its beam search.
GoldenReport verify_pairs(const GoldenFile& file);
/// kind image_transform.
GoldenReport verify_image_transform(const GoldenFile& file);
/// kind op: an operation of detection; kinds neck and head: FPN, and the heads of detectors.
GoldenReport verify_detection_op(const GoldenFile& file);
GoldenReport verify_detection_head(const GoldenFile& file);

/// Whether it is a list of image files with the expected result of reading each ("mnemo-expect/1" with `files` in the
/// metadata).
bool is_image_list(const weights::TensorFile& file);
/// STEM.safetensors lists the files in the folder STEM next to it; STEM.json, if it exists, lists those that must be
/// rejected.
GoldenReport verify_image_list(const std::string& path, const weights::TensorFile& list);

}  // namespace mnemo::verify
