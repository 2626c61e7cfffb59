#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "layers/parameters.h"
#include "verify/golden.h"
#include "weights/safetensors.h"

namespace mnemo::verify {

/// A golden file read and cut into its parts ("mnemo-golden/1").
class GoldenFile {
 public:
  /// Its tensors on the device.
  GoldenFile(const std::string& path, at::Device device);

  const std::string& path() const { return path_; }
  const base::Node& config() const { return config_; }
  at::Device device() const { return device_; }
  bool training() const { return training_; }
  double tolerance() const { return tolerance_; }
  const std::string& what() const { return what_; }
  /// Metadata of that key as JSON, a null node where there is none.
  base::Node metadata(const std::string& key) const;
  int64_t num_steps() const;
  /// The tensor of that name, or an undefined one.
  at::Tensor find(const std::string& name) const;
  at::Tensor step(int64_t step, const std::string& rest) const;
  /// (rest of the name, tensor) of every tensor whose name starts with the prefix.
  std::vector<std::pair<std::string, at::Tensor>> under(const std::string& prefix) const;
  /// What its config may ask for: see weights::budget_of.
  layers::Budget budget() const;
  /// Copies param.* into the parameters, every one of both sides once.
  void load_parameters(const layers::ParameterSet& parameters) const;

 private:
  std::string path_, what_;
  weights::TensorFile file_;
  at::Device device_;
  base::Node config_;
  bool training_ = false;
  double tolerance_ = 0.0;
};

/// Collects differences by group.
class GoldenComparison {
 public:
  explicit GoldenComparison(const GoldenFile& file);
  /// Of a file whose metadata hold `case` and `tolerance`, and that format. Throws InputError where they do not.
  GoldenComparison(const std::string& path, const weights::Metadata& metadata, const std::string& format);
  /// `found` undefined counts as zeros (a gradient that no one asked for). tolerance: of the group, where it is not the
  /// file's.
  void compare(const std::string& group, const std::string& name, const at::Tensor& expected, const at::Tensor& found,
               std::optional<double> tolerance = {});
  GoldenReport take() { return std::move(report_); }

 private:
  GoldenReport report_;
};

/// kind attention; and kinds layer_stack and model.
GoldenReport verify_attention(const GoldenFile& file);
GoldenReport verify_model(const GoldenFile& file);
/// kind model with `train` in its config: a ViT with tasks of learnable memory.
GoldenReport verify_tasks(const GoldenFile& file);
/// kind image_transform.
GoldenReport verify_image_transform(const GoldenFile& file);

/// Whether it is a list of image files with what reading each must give ("mnemo-expect/1" with the metadata `files`).
bool is_image_list(const weights::TensorFile& file);
/// STEM.safetensors lists the files of the folder STEM beside it; STEM.json, where there is one, those that must be
/// refused.
GoldenReport verify_image_list(const std::string& path, const weights::TensorFile& list);

}  // namespace mnemo::verify
