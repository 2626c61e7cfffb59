// Runs, model folders and a session written by commit 5d917156 (tests/data/earlier_runs) load, resume and print the
// same numbers.
#include <cmath>

#include "base/json_value.h"
#include "tests/support/command_line.h"
#include "weights/safetensors.h"

namespace mnemo {
namespace {

using test::Finished;

/// Keys whose values depend on the machine and the moment.
bool is_measured_time(const std::string& key) { return key == "seconds" || key == "tokens_per_second"; }

/// Expects equal values, numbers to a relative 1e-4: processors round differently.
void expect_equal(const base::Node& found, const base::Node& expected, const std::string& where) {
  if (expected.is_table()) {
    for (const auto& [key, value] : expected.members()) {
      const base::Node* other = found.is_table() ? found.find(key) : nullptr;
      ASSERT_NE(other, nullptr) << where << "." << key << " is missing";
      if (!is_measured_time(key)) expect_equal(*other, value, where + "." + key);
    }
    return;
  }
  if (expected.is_array()) {
    ASSERT_EQ(found.items().size(), expected.items().size()) << where;
    for (size_t i = 0; i < expected.items().size(); ++i)
      expect_equal(found.items()[i], expected.items()[i], where + "[" + std::to_string(i) + "]");
    return;
  }
  if (expected.is_real()) {
    EXPECT_NEAR(found.as_double(), expected.as_double(), 1e-4 * std::max(1.0, std::abs(expected.as_double()))) << where;
    return;
  }
  EXPECT_EQ(found, expected) << where;
}

class EarlierRuns : public testing::Test {
 protected:
  EarlierRuns() {
    const auto all = std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy(MNEMO_SOURCE_DIR "/tests/data/earlier_runs", folder_.path(), all);
    std::filesystem::current_path(folder_.path());
  }
  ~EarlierRuns() override { std::filesystem::current_path(before_); }

  Finished run(const std::vector<std::string>& arguments) { return test::Process(folder_, arguments).finish(); }
  /// Resumes the run after its 4 steps and returns the model that its 8 steps make.
  weights::TensorFile resumed(const std::string& name, const std::string& command) {
    std::string recipe = test::content(name + "/recipe.toml");
    for (size_t at; (at = recipe.find("\"@/")) != std::string::npos;)
      recipe.replace(at, 3, "\"" + folder_.path() + "/");
    test::write(name + "/recipe.toml", recipe);
    std::filesystem::remove_all(name + "/model");
    const Finished outcome = run({command, "--resume", name, "-q"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return weights::read_safetensors(name + "/model/model.safetensors");
  }

  test::TemporaryFolder folder_;
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(EarlierRuns, CommandsPrintTheSame) {
  const base::Node expected = base::parse_json(test::content("expected.json"), "expected.json");
  ASSERT_GE(expected.items().size(), 15u);
  for (const base::Node& item : expected.items()) {
    std::vector<std::string> arguments;
    for (const base::Node& word : item.at("command").items()) arguments.push_back(word.as_string());
    const Finished outcome = run(arguments);
    const std::string where = arguments[0] + " " + arguments[1];
    ASSERT_EQ(outcome.status, 0) << where << ": " << outcome.err;
    expect_equal(base::parse_json(outcome.out, where), item.at("output"), where);
  }
}

TEST_F(EarlierRuns, CheckpointsResumeToTheSameModel) {
  for (const std::string name : {"abc", "text", "pairs", "vit", "pvt", "task", "lora"}) {
    const weights::TensorFile expected = weights::read_safetensors(name + "/model/model.safetensors");
    const weights::TensorFile found = resumed(name, name == "task" ? "finetune" : "train");
    ASSERT_EQ(found.tensors.size(), expected.tensors.size()) << name;
    for (const auto& [tensor, value] : expected.tensors) {
      // A step of AdamW moves a weight by up to lr = 5e-3 whatever its gradient; other processors round differently.
      EXPECT_TRUE(at::allclose(found.at(tensor, name).to(at::kDouble), value.to(at::kDouble), 1e-3, 1e-4))
          << name << ": " << tensor;
    }
  }
}

}  // namespace
}  // namespace mnemo
