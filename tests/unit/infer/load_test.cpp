#include "bundle/load.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/options.h"
#include "bundle/model_folder.h"
#include "infer/session.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "weights/model_tensors.h"

namespace mnemo::bundle {
namespace {

using base::InputError;
using test::expect_error;

models::ModelOptions options() {
  models::ModelOptions options;
  options.embedding.vocab_size = 256;
  options.backbone.stack().num_layers = 2;
  options.backbone.stack().dim = 8;
  options.backbone.stack().num_heads = 2;
  options.backbone.stack().ffn_dim = 12;
  options.memory = {models::ModelOptions::memory_types().read(base::Node::table({{"type", "grc"}, {"cache_len", 3}}))};
  options.segment_size = 6;
  return options;
}

class Load : public testing::Test {
 protected:
  Load() {
    model_ = models::build(options(), 3, at::kDouble);
    at::manual_seed(1);
    model_->commit(model_->initial_state(1).map([](const core::Field& field, const at::Tensor& tensor) {
      return field.per_sequence() ? tensor : at::randn_like(tensor);
    }));
    content_.config = base::to_json(base::write_options(options()));
    content_.weights.tensors = weights::model_tensors(*model_);
    content_.vocabulary = text::make_byte_tokenizer()->save();
    content_.card = "# Tiny\n";
  }
  void write() { bundle::write_model_folder(path_, content_); }
  void expect_refused(std::initializer_list<std::string> parts) {
    write();
    const std::string message = expect_error<InputError>([&] { load_model(path_); }, parts);
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }
  void configure(const std::string& assignment) {
    base::Node config = base::parse_json(content_.config, "config.json");
    base::set_value(config, assignment);
    content_.config = base::to_json(config);
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "model";
  std::shared_ptr<models::Model> model_;
  bundle::ModelFolder content_;
};

TEST_F(Load, GivesTheSameModelBack) {
  write();
  const LoadedModel loaded = load_model(path_, {.dtype = at::kDouble});
  EXPECT_EQ(infer::fingerprint(*loaded.model), infer::fingerprint(*model_));
  EXPECT_EQ(loaded.tokenizer->type(), "bytes");
  // Also the model's own cache, which is not a parameter.
  infer::Session a(model_), b(loaded.model);
  const std::vector<int64_t> tokens = {72, 97, 108, 108, 111, 33, 10};
  a.feed(tokens);
  b.feed(tokens);
  EXPECT_TRUE(at::equal(a.logits(), b.logits()));
  infer::Session fresh(std::shared_ptr<const core::Model>(models::build(options(), 3, at::kDouble)));
  fresh.feed(tokens);
  EXPECT_FALSE(at::allclose(a.logits(), fresh.logits(), 1e-6))
      << "the cache makes no difference, so the test shows nothing";
}

TEST_F(Load, ConvertsToTheTypeAskedFor) {
  write();
  const LoadedModel loaded = load_model(path_);
  EXPECT_EQ(loaded.model->parameters().all().front().tensor.scalar_type(), at::kFloat);
  infer::Session session(loaded.model);
  const int64_t token = 65;
  session.feed({&token, 1});
  EXPECT_EQ(session.logits().scalar_type(), at::kFloat);
  expect_error<InputError>([&] { load_model(path_, {.dtype = at::kHalf}); }, {"float32 or float64", "Half"});
}

TEST_F(Load, WhatIsMissingIsNamed) {
  expect_error<InputError>([&] { load_model(path_); }, {path_});
  write();
  base::remove_tree(base::join_path(path_, "vocabulary.json"));
  expect_error<InputError>([&] { load_model(path_); }, {"vocabulary.json"});
  content_.weights.tensors.pop_back();
  expect_refused({"model.safetensors", "missing 1", "grc.cache"});
}

TEST_F(Load, WhatDoesNotFitIsNamed) {
  configure("backbone.dimm=9");
  expect_refused({"config.json", "dimm", "dim"});
}

TEST_F(Load, TheVocabularyMustBeTheModels) {
  configure("embedding.vocab_size=255");
  expect_refused({"config.json", "vocab_size", "256", "255"});
}

TEST_F(Load, OtherShapesAreRefused) {
  configure("memory.0.cache_len=4");
  expect_refused({"model.safetensors", "grc.cache", "4", "3"});
}

TEST_F(Load, AConfigurationBeyondItsWeightsAllocatesNothing) {
  const std::string plain = content_.config;
  const auto expect_too_large = [&](std::initializer_list<const char*> assignments, const std::string& name) {
    content_.config = plain;
    for (const char* assignment : assignments) configure(assignment);
    expect_refused({"config.json:", ": " + name, "numbers, expected at most", "model.safetensors holds"});
  };
  expect_too_large({"backbone.ffn_dim=1000000"},
                   "parameter 'backbone.layers.0.ffn.0.weight' of [1000000,8] is 8000000");
  expect_too_large({"backbone.dim=65536"}, "parameter 'embed.weight'");
  expect_too_large({"backbone.head_dim=65536", "backbone.num_heads=1024"}, "parameter 'backbone.layers.0.attn");
  expect_too_large({"backbone.num_layers=1024", "backbone.ffn_dim=4096"}, "parameter 'backbone.layers.");
  expect_too_large({"backbone.position.type=learned", "backbone.position.max_len=16777216"},
                   "parameter 'backbone.positions.weight'");
  expect_too_large({"memory.1={type=\"recurrent_tokens\",num_mem_tokens=65536}", "backbone.dim=32"},
                   "parameter 'memory.tokens'");
  expect_too_large({"backbone.attention={type=\"abc\",num_slots=65536}"},
                   "parameter 'backbone.layers.1.attn.control.weight' of [131072,8]");
  // State that is not in the file is limited too.
  expect_too_large({"memory.0.cache_len=1048576", "memory.0.lifetime=sequence", "backbone.num_layers=8"},
                   "state 'backbone.layers.4.attn.grc.cache' of [1048576,4]");
  expect_too_large({"memory.0.cache_len=1048576", "backbone.num_layers=8"}, "state 'backbone.layers.4.attn.grc.cache'");
  expect_too_large({"backbone.attention={type=\"abc\",num_slots=65536,control={shared_across_heads=true}}",
                    "backbone.head_dim=1024"},
                   "state 'backbone.layers.0.attn.k, v, z'");
}

// Such a folder has no vocabulary, whose size would contradict the configuration earlier.
TEST_F(Load, AStackOfLayersIsHeldToItsWeightsToo) {
  models::ModelOptions huge = options();
  huge.kind = models::ModelOptions::Kind::layer_stack;
  huge.backbone.stack().ffn_dim = 1 << 20;
  expect_error<InputError>(
      [&] { model_from(huge, content_.weights, path_); },
      {path_, "config.json: parameter 'backbone.layers.0.ffn.0.weight'", "model.safetensors holds"});
}

TEST_F(Load, ALayerStackMakesNoText) {
  configure("kind=layer_stack");
  expect_refused({"config.json", "layer_stack"});
}

}  // namespace
}  // namespace mnemo::bundle
