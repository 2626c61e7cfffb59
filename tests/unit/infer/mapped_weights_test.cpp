// Models whose large weights stay in the mapped file until an engine has packed them.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/mapped.h"
#include "core/mapped_tensor.h"
#include "infer/engine.h"
#include "models/model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_folders.h"
#include "weights/map_safetensors.h"

namespace mnemo::infer {
namespace {

/// A folder of GPT-2's format, whose matrices are transposed and share a tensor. Those of attention's output and of the
/// positions are small.
class MappedWeights : public testing::Test {
 protected:
  MappedWeights() {
    base::Node config = weights::parse_model_config(bundle::read_model_config(test::kTexts + "gpt2"), "gpt2");
    for (const auto& [key, value] : {std::pair("n_embd", 320), {"n_head", 4}, {"n_layer", 2}, {"vocab_size", 900}})
      config.set(key, int64_t{value});
    config.set("n_inner", base::Node());
    const weights::ForeignFormat& format = *weights::foreign_format_of(config);
    const auto model = models::build(models::read_model_options(format.options(config)), 5);
    base::write_file_atomic(folder_ / "config.json", base::to_json(config));
    tensors_ = weights::to_theirs(format, model->parameters().named(), 4);
    for (auto& [name, tensor] : tensors_) tensor = tensor.detach().contiguous();
    write();
  }
  void write() const { weights::write_safetensors(file_, tensors_); }

  test::TemporaryFolder folder_;
  std::string file_ = folder_ / "model.safetensors";
  weights::NamedTensors tensors_;
};

std::vector<float> logits_of(const Engine& engine) {
  const std::vector<int64_t> tokens = {7, 899, 0, 31, 7};
  std::vector<float> logits(900);
  EngineSequence sequence = engine.begin();
  const Engine::Step step{&sequence, tokens, logits.data()};
  engine.run({&step, 1});
  return logits;
}

TEST_F(MappedWeights, AreTheModelsOwnInTheFile) {
  const auto read = bundle::load_any(folder_.path()).model, mapped = bundle::map_any(folder_.path()).model;
  int in_file = 0;
  for (const auto& [name, tensor, kind] : mapped->parameters().all()) {
    const at::Tensor expected = read->parameters().find(name);
    EXPECT_TRUE(at::equal(tensor, expected)) << name;
    EXPECT_FALSE(core::is_mapped(expected)) << name;
    EXPECT_TRUE(tensor.requires_grad() && tensor.is_leaf()) << name;
    in_file += core::is_mapped(tensor) ? 1 : 0;
    const at::Tensor own = core::owned(tensor);
    EXPECT_TRUE(own.is_contiguous() && !core::is_mapped(own) && at::equal(own, expected)) << name;
  }
  EXPECT_EQ(in_file, 1 + 2 * 5);  // embedding; q, k, v and both maps of the feed-forward
}

/// Bytes of the file in this process's memory.
int64_t mapped_bytes(const std::string& file) {
  std::ifstream maps("/proc/self/smaps");
  int64_t kilobytes = 0;
  bool is_file = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ')) is_file = line.ends_with(file);
    if (is_file && line.starts_with("Rss:")) kilobytes += std::stoll(line.substr(4));
  }
  return kilobytes * 1024;
}

TEST_F(MappedWeights, AreNotHeldBesideThoseThatArePacked) {
  const std::shared_ptr<models::Model> model = bundle::map_any(folder_.path()).model;
  constexpr int64_t kMatrix = 900 * 320 * 4;
  // The system maps a few pages around each that is read.
  EXPECT_LT(mapped_bytes(file_), kMatrix / 4) << "once checked";
  EXPECT_TRUE(model->parameters().find("embed.weight").isfinite().all().item<bool>());
  EXPECT_GT(mapped_bytes(file_), kMatrix / 2);
  const Engine engine(model, {ops::Precision::int8});
  EXPECT_LT(mapped_bytes(file_), kMatrix / 4) << "once packed";
}

// Nothing is read from the file once the engine is made: another program may cut it off.
TEST_F(MappedWeights, AnEngineGivesTheSameBits) {
  const std::shared_ptr<models::Model> read = bundle::load_any(folder_.path()).model;
  for (const ops::Precision precision :
       {ops::Precision::float32, ops::Precision::bf16, ops::Precision::int8, ops::Precision::w8a8}) {
    write();
    const Engine engine(bundle::map_any(folder_.path()).model, {precision});
    std::filesystem::resize_file(file_, 0);
    EXPECT_EQ(logits_of(engine), logits_of(Engine(read, {precision}))) << ops::name_of(precision);
  }
}

TEST_F(MappedWeights, AreCheckedAsThoseThatAreRead) {
  at::Tensor& embedding = tensors_[0].second;
  ASSERT_EQ(tensors_[0].first, "transformer.wte.weight");
  embedding[899][319] = std::numeric_limits<float>::infinity();
  write();
  test::expect_error<base::InputError>([&] { bundle::map_any(folder_.path()); },
                                       {file_, "'transformer.wte.weight' expected finite numbers"});
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 1);
  test::expect_error<base::InputError>([&] { bundle::map_any(folder_.path()); }, {file_, "rule 12", "cut off"});
}

// The format promises no alignment, and a bool may hold any byte.
TEST_F(MappedWeights, WhatCannotStayIsCopied) {
  constexpr int64_t kSize = int64_t{1} << 20;
  const weights::NamedTensors tensors = {{"double", at::ones({kSize / 4}, at::kDouble)},
                                         {"byte", at::ones({kSize + 1}, at::kByte)},
                                         {"bool", at::ones({kSize}, at::kBool)}};
  const std::string bytes = weights::encode_safetensors(tensors);
  for (const int64_t more : {0, 4, 1}) {  // spaces at the end of the header
    std::string moved = bytes;
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header += static_cast<uint64_t>(more);
    std::memcpy(moved.data(), &header, sizeof(header));
    moved.insert(moved.find("}}") + 2, static_cast<size_t>(more), ' ');
    base::write_file_atomic(file_, moved);
    const weights::TensorFile file = weights::map_safetensors(file_);
    for (const auto& [name, tensor] : tensors) EXPECT_TRUE(at::equal(file.at(name, file_), tensor)) << name;
    EXPECT_EQ(core::is_mapped(file.at("double", file_)), more == 0);
    EXPECT_TRUE(core::is_mapped(file.at("byte", file_)));
    EXPECT_FALSE(core::is_mapped(file.at("bool", file_)));
  }
}

}  // namespace
}  // namespace mnemo::infer
