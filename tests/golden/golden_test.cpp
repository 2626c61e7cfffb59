// Every golden file in tests/golden/data, and every model folder with an expect.safetensors: outputs, states, gradients
// and optimizer steps within the file's tolerance.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/node.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/verify/golden.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using test::golden_files;

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, WithinTolerance) {
  const verify::GoldenReport report = verify::verify_golden(GetParam());
  ASSERT_FALSE(report.groups.empty());
  for (const auto& group : report.groups) {
    EXPECT_LE(group.error, group.tolerance) << report.what << ": " << group.name << ", worst " << group.worst;
  }
}

/// A golden file, and the path that verify_golden takes, in a folder of links where the file may be rewritten.
class Rewritten {
 public:
  explicit Rewritten(const std::string& path) {
    namespace fs = std::filesystem;
    const bool folder = fs::is_directory(path);
    const fs::path original = folder ? fs::path(path) / "expect.safetensors" : fs::path(path);
    for (const auto& entry : fs::directory_iterator(original.parent_path()))
      fs::create_symlink(entry.path(), fs::path(folder_.path()) / entry.path().filename());
    file_ = folder_ / original.filename().string();
    given_ = folder ? folder_.path() : file_;
    content = weights::read_safetensors(original.string());
  }
  verify::GoldenReport verify() const {
    std::filesystem::remove(file_);
    weights::write_safetensors(file_, content.tensors, content.metadata);
    return verify::verify_golden(given_);
  }
  const std::string& file() const { return file_; }

  weights::TensorFile content;

 private:
  test::TemporaryFolder folder_;
  std::string file_, given_;
};

bool is_input(const std::string& name) {
  static const std::regex inputs(
      R"(((param|buffer|state\.init|step\.\d+\.(input|cotangent))\..*)|pixels|cotangent\.logits|(decoder_)?input_ids|attention_mask|token_type_ids|labels|generate\.prompt(_mask)?)");
  return std::regex_match(name, inputs);
}

/// A copy with another number in the middle; of a batch of rows, in the middle of each sequence, as rows of padding are
/// not compared.
at::Tensor changed(const at::Tensor& tensor) {
  at::Tensor copy = tensor.clone();
  const at::Tensor flat = copy.dim() >= 3 && copy.is_floating_point() ? copy.view({copy.size(0), -1})
                                                                      : copy.view({1, -1});
  at::Tensor one = flat.select(1, flat.size(1) / 2);
  if (copy.scalar_type() == at::kBool) {
    one.logical_not_();
  } else if (copy.scalar_type() == at::kByte) {
    one.copy_((one.to(at::kLong) + 100) % 256);
  } else {
    one.copy_(at::where(at::isfinite(one), one + 1, at::zeros_like(one)));
  }
  return copy;
}

// One number of every expected tensor is changed, all at once: nothing that is expected has an effect on what is found.
TEST_P(Golden, EveryExpectedTensorIsCompared) {
  if (GetParam().ends_with("images/broken.safetensors"))
    GTEST_SKIP() << "a broken file may be refused instead of read: its image is then not compared";
  Rewritten rewritten(GetParam());
  std::set<std::string> expected;
  for (auto& [name, tensor] : rewritten.content.tensors) {
    if (is_input(name) || name.starts_with("pillow.") || tensor.numel() == 0) continue;
    tensor = changed(tensor);
    expected.insert(name);
  }
  std::set<std::string> beyond;
  for (const auto& group : rewritten.verify().groups) beyond.insert(group.beyond.begin(), group.beyond.end());
  for (const std::string& name : expected) EXPECT_TRUE(beyond.contains(name)) << name;
}

// Names that a file of its kind has no use for, one at a time.
TEST(GoldenFile, UnknownTensorsAreRefusedByName) {
  const std::vector<std::string> golden = {
      "step.0.output.bogus",   "step.0.state.bogus", "step.0.buffer.bogus", "grad.param.bogus",
      "grad.state.init.bogus", "step.99.output.x",   "step.0.input.bogus",  "step.0.cotangent.bogus",
      "buffer.bogus",          "state.init.bogus",   "param.bogus",         "optim.bogus",
      "step.0.output.logits.x"};
  for (const char* file :
       {"abc/exp_one_token.safetensors", "recurrent/rmt_one_token.safetensors", "recurrent/layer_pre_norm.safetensors",
        "learnable_memory/full.safetensors", "learnable_memory/train_full.safetensors",
        "vision_grc/vit_paper.safetensors", "vision_import/pvt_v1/pvt_v1.safetensors", "images/mixup.safetensors",
        "images/broken.safetensors", "detection/box_iou.safetensors", "vision_import/timm_vit"}) {
    Rewritten rewritten(MNEMO_SOURCE_DIR "/tests/golden/data/" + std::string(file));
    const bool steps = rewritten.content.metadata["format"] == "mnemo-golden/1";
    for (const std::string& name : steps ? golden : std::vector<std::string>{"bogus"}) {
      rewritten.content.tensors.emplace_back(name, at::zeros({2}, at::kDouble));
      test::expect_error<base::InputError>(
          [&] { rewritten.verify(); },
          {name == "param.bogus" ? "bogus" : name, std::filesystem::path(rewritten.file()).filename().string()});
      rewritten.content.tensors.pop_back();
    }
  }
}

// `train` only says which gradients there are: without it everything of such a file is compared too.
TEST(GoldenFile, TasksNeedNoListOfTrainedParameters) {
  Rewritten rewritten(MNEMO_SOURCE_DIR "/tests/golden/data/learnable_memory/masked.safetensors");
  base::Node config = base::parse_json(rewritten.content.metadata["config"], "config");
  ASSERT_TRUE(config.contains("train"));
  config.erase("train");
  rewritten.content.metadata["config"] = base::to_json(config, -1);
  rewritten.content.metadata.erase("frozen");
  EXPECT_TRUE(rewritten.verify().passed());
  for (const char* name : {"step.0.output.logits.A", "step.0.output.attend_mask.0"}) {
    const auto at = std::find_if(rewritten.content.tensors.begin(), rewritten.content.tensors.end(),
                                 [&](const auto& one) { return one.first == name; });
    ASSERT_NE(at, rewritten.content.tensors.end());
    const at::Tensor kept = at->second;
    at->second = changed(kept);
    EXPECT_FALSE(rewritten.verify().passed()) << name;
    at->second = kept;
  }
}

// Without cotangents there are no gradients to compare.
TEST(GoldenFile, CotangentsMayBeMissing) {
  for (const char* name : {"/vision_import/pvt_v1/pvt_v1.safetensors", "/vision_grc/vit_paper.safetensors",
                           "/learnable_memory/full.safetensors", "/recurrent/rmt_pre.safetensors"}) {
    Rewritten rewritten(MNEMO_SOURCE_DIR "/tests/golden/data" + std::string(name));
    std::erase_if(rewritten.content.tensors, [](const auto& one) {
      return one.first.find("cotangent.") != std::string::npos || one.first.starts_with("grad.");
    });
    EXPECT_TRUE(rewritten.verify().passed()) << name;
  }
}

// A file whose config needs far more than its tensors: rejected before anything is allocated.
TEST(GoldenFile, AConfigBeyondItsTensorsIsRefused) {
  const test::TemporaryFolder folder;
  const auto expect_refused = [&](const std::string& name, const std::string& from, const std::string& to,
                                  const std::string& what) {
    weights::TensorFile file = weights::read_safetensors(MNEMO_SOURCE_DIR "/tests/golden/data/" + name);
    std::string& config = file.metadata["config"];
    ASSERT_NE(config.find(from), std::string::npos);
    config.replace(config.find(from), from.size(), to);
    const std::string path = folder / "large.safetensors";
    weights::write_safetensors(path, file.tensors, file.metadata);
    test::expect_error<base::InputError>([&] { verify::verify_golden(path); },
                                         {what, "numbers, expected at most", path + " holds"});
  };
  expect_refused("recurrent/mt.safetensors", "\"vocab_size\": 17", "\"vocab_size\": 16777216",
                 "parameter 'embed.weight'");
  expect_refused("recurrent/mt.safetensors", "\"ffn_dim\": 11", "\"ffn_dim\": 1048576", "ffn.0.weight'");
  expect_refused("abc/exp_one_token.safetensors", "\"dim\": 8", "\"dim\": 4096", "of [4096,4096]");
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_files()), [](const auto& info) {
  const std::filesystem::path path(info.param);
  std::string name = path.parent_path().filename().string() + "_" + path.stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
});

}  // namespace
}  // namespace mnemo
