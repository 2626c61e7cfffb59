#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "infer/task_classifier.h"
#include "models/image_model.h"
#include "tests/support/numbers.h"
#include "weights/load_into.h"
#include "weights/model_tensors.h"
#include "weights/task_memory.h"

namespace mnemo::infer {

inline constexpr int64_t kDim = 24, kLayers = 3;

inline models::ModelOptions options_of(const std::string& memory = "[]", const std::string& more = "") {
  return base::read_options<models::ModelOptions>(base::parse_json(
      R"({"backbone": {"type": "vit", "image_size": [16, 16], "patch_size": 4, "dim": 24, "num_layers": 3, "num_heads": 3, "mlp_ratio": 2.0},
          "head": {"type": "classification", "num_classes": 5}, "memory": )" +
          memory + more + "}",
      "test"));
}

/// Parameters from N(0, 0.3), norms around 1, so that nothing is small initially.
inline void fill(const core::Model& model, uint64_t seed) {
  test::Numbers numbers(seed);
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& one : model.parameters().all()) {
    at::Tensor(one.tensor)
        .copy_(numbers.normal(one.tensor.sizes()) * 0.3 +
               (one.name.find("norm") != std::string::npos && one.name.ends_with("weight") ? 1.0 : 0.0));
  }
}

inline weights::StoredParts fresh_backbone(uint64_t seed = 1) {
  const models::ImageModel model(options_of(), 0, at::kFloat);
  fill(model, seed);
  return {model.options(), weights::model_tensors(model)};
}

inline std::shared_ptr<models::ImageModel> built(const weights::StoredParts& parts, at::ScalarType dtype = at::kFloat) {
  auto model = std::make_shared<models::ImageModel>(parts.options, 0, dtype);
  weights::TensorFile file;
  file.tensors = parts.tensors;
  weights::load_model_tensors(file, *model, "test");
  return model;
}

/// A task with random values, in the form that fine-tuning produces.
inline weights::TaskMemoryFile task(const weights::StoredParts& backbone, const std::string& name, uint64_t seed,
                                    const std::string& more = "") {
  auto options = options_of(R"([{"type": "learnable_tokens", "tasks": [{"name": ")" + name +
                            R"(", "num_classes": 4, "num_mem_tokens": )" + std::to_string(1 + seed % 4) + more +
                            "}]}]");
  const models::ImageModel model(options, 0, at::kFloat);
  fill(model, 100 + seed);
  weights::StoredParts parts{model.options(), weights::model_tensors(model)};
  weights::TaskMemoryFile file = weights::take_task(parts, name);
  file.backbone = weights::backbone_checksum(backbone);
  return file;
}

inline at::Tensor pixels(int64_t batch = 2, uint64_t seed = 9) {
  return test::Numbers(seed).normal({batch, 3, 16, 16}).to(at::kFloat);
}

using Logits = std::map<std::string, at::Tensor>;

inline Logits as_map(const std::vector<models::TaskLogits>& all) {
  Logits map;
  for (const auto& [name, logits] : all) map[name] = logits.detach();
  return map;
}
inline Logits by_model(const weights::StoredParts& parts) {
  const at::NoGradGuard no_grad;
  return as_map(built(parts)->task_logits({.tokens = {}, .rows = {}, .pixels = pixels()}));
}
inline Logits packed(const weights::StoredParts& parts) { return as_map(TaskClassifier(built(parts))(pixels())); }

inline void expect_same_bits(const Logits& before, const Logits& after, const std::string& where) {
  for (const auto& [name, logits] : before) {
    ASSERT_TRUE(after.contains(name)) << where << ": " << name;
    EXPECT_TRUE(at::equal(logits, after.at(name)))
        << where << ": " << name << " moved by " << (logits - after.at(name)).abs().max().item<double>();
  }
}

/// A model with these options as parts, with random values.
inline weights::StoredParts parts_of(const models::ModelOptions& options, uint64_t seed = 1) {
  const models::ImageModel model(options, 0, at::kFloat);
  fill(model, seed);
  return {model.options(), weights::model_tensors(model)};
}
inline std::string memory_of(const std::string& task, const std::string& attention = "masked") {
  return R"([{"type": "learnable_tokens", "attention": ")" + attention + R"(", "tasks": [)" + task + "]}]";
}
/// A task extracted from such a model, trained for the backbone.
inline weights::TaskMemoryFile taken(const weights::StoredParts& backbone, const models::ModelOptions& options,
                                     const std::string& name) {
  weights::TaskMemoryFile file = weights::take_task(parts_of(options, 7), name);
  file.backbone = weights::backbone_checksum(backbone);
  return file;
}

}  // namespace mnemo::infer
