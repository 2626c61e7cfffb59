#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "infer/session.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/session_tokens.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

using base::InputError;
using test::expect_error;
using test::FakeModel;

class SessionFile : public testing::Test {
 protected:
  /// Saves after `steps` tokens and returns the rest of the text.
  std::vector<int64_t> saved_after(int64_t steps) {
    Session session(model_, kPenalised);
    if (steps > 0) session.feed(prompt(3));
    take(session, std::max<int64_t>(0, steps - 3));
    session.save(path_);
    return steps > 0 ? take(session, 40) : std::vector<int64_t>{};
  }
  /// Edits the file.
  void change(const std::function<void(weights::TensorFile&)>& edit) {
    weights::TensorFile file = weights::read_safetensors(path_);
    edit(file);
    file.metadata.erase("format_version");
    weights::write_safetensors(path_, file.tensors, file.metadata);
  }
  void expect_refused(const std::function<void(weights::TensorFile&)>& edit, std::initializer_list<std::string> parts) {
    saved_after(10);
    change(edit);
    const std::string message = expect_error<InputError>([&] { Session::load(path_, model_); }, parts);
    EXPECT_NE(message.find(path_), std::string::npos) << message;
  }
  static void replace(weights::TensorFile& file, const std::string& name, const at::Tensor& tensor) {
    for (auto& [key, value] : file.tensors) {
      if (key == name) value = tensor;
    }
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "session.safetensors";
  std::shared_ptr<FakeModel> model_ = model();
};

TEST_F(SessionFile, ContinuesExactly) {
  for (const int64_t steps : {0, 3, 4, 5, 8, 10, 12, 23}) {
    const std::vector<int64_t> rest = saved_after(steps);
    Session loaded = Session::load(path_, model_);
    EXPECT_EQ(loaded.position(), steps);
    EXPECT_EQ(loaded.sampling().seed, kSampled.seed);
    if (steps > 0) {
      EXPECT_EQ(take(loaded, 40), rest) << steps;
    }
  }
}

TEST_F(SessionFile, KeepsItsSamplingAndWhatItCounts) {
  const GenerateOptions penalised = {.temperature = 1.5,
                                     .top_k = 9,
                                     .top_p = 0.99,
                                     .min_p = 0.01,
                                     .repetition_penalty = 1.4,
                                     .frequency_penalty = 0.5,
                                     .presence_penalty = 0.25,
                                     .seed = 3};
  Session session(model_, penalised);
  session.feed(prompt(6));
  take(session, 10);
  session.save(path_);
  const std::vector<int64_t> rest = take(session, 30);
  Session loaded = Session::load(path_, model_);
  EXPECT_EQ(base::write_options(loaded.sampling()), base::write_options(penalised));
  EXPECT_EQ(take(loaded, 30), rest);
  // Files of earlier versions do not have them.
  change([](auto& f) {
    for (const char* key : {"min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "sample_unknown"})
      f.metadata.erase(key);
    std::erase_if(f.tensors, [](const auto& named) { return named.first.starts_with("counts."); });
  });
  EXPECT_EQ(Session::load(path_, model_).sampling().repetition_penalty, 1.0);
}

// Checking a file takes a few tokens, however long a segment is.
TEST_F(SessionFile, LongSegmentsAreNotRunThrough) {
  model_ = model(16384);
  for (const int64_t steps : {0, 3, 10}) {
    const std::vector<int64_t> rest = saved_after(steps);
    model_->calls = model_->widest = 0;
    Session loaded = Session::load(path_, model_);
    EXPECT_LE(model_->calls, 5);
    EXPECT_LE(model_->widest, steps + 2);
    if (steps > 0) {
      EXPECT_EQ(take(loaded, 40), rest) << steps;
    }
  }
}

TEST_F(SessionFile, KeepsTheLastTokens) {
  Session session(model_, kSampled);
  EXPECT_TRUE(session.recent().empty());
  session.feed(prompt(2));
  EXPECT_EQ(session.recent(), prompt(2));
  session.feed(std::vector<int64_t>{5, 6, 7, 8});
  EXPECT_EQ(session.recent(), (std::vector<int64_t>{6, 7, 8}));
  const int64_t picked = session.next();
  session.save(path_);
  EXPECT_EQ(Session::load(path_, model_).recent(), (std::vector<int64_t>{7, 8, picked}));
  // Files of earlier versions do not have it.
  change([](auto& f) { f.metadata.erase("recent"); });
  EXPECT_EQ(Session::load(path_, model_).recent(), std::vector<int64_t>{picked});
  session.logits();
  session.save(path_);
  change([](auto& f) { f.metadata.erase("recent"); });
  EXPECT_TRUE(Session::load(path_, model_).recent().empty());
}

TEST_F(SessionFile, OtherModelsAreRefused) {
  saved_after(10);
  for (const auto& other : {model(4, 2), model(5, 1)}) {
    expect_error<InputError>([&] { Session::load(path_, other); }, {path_, "other options or weights"});
  }
  EXPECT_EQ(fingerprint(*model()), fingerprint(*model()));
}

TEST_F(SessionFile, DamagedFilesAreRefused) {
  expect_refused([](auto& f) { f.metadata.erase("position"); }, {"'position'", "none"});
  expect_refused([](auto& f) { f.metadata["format"] = "mnemo-session/9"; }, {"mnemo-session/1", "mnemo-session/9"});
  expect_refused([](auto& f) { f.metadata["position"] = "ten"; }, {"'position'", "'ten'"});
  expect_refused([](auto& f) { f.metadata["position"] = "11"; }, {"'position' 11", "'used'"});
  expect_refused([](auto& f) { f.metadata["position"] = "-2"; }, {"'position' -2"});
  expect_refused([](auto& f) { f.metadata["used"] = "77"; }, {"'used' 77"});
  expect_refused([](auto& f) { f.metadata["pending"] = "11"; }, {"'pending' 11"});
  expect_refused([](auto& f) { f.metadata["recent"] = "1 11"; }, {"'recent'", "0 to 10", "found 11"});
  expect_refused([](auto& f) { f.metadata["recent"] = "1 x"; }, {"'recent'", "'x'"});
  expect_refused([](auto& f) { f.metadata["recent"] = "1 2 3 4"; }, {"'recent' [1 2 3 4]", "'position' 10"});
  expect_refused([](auto& f) { f.metadata["recent"] = std::to_string((std::stoi(f.metadata["pending"]) + 1) % 11); },
                 {"'recent'", "'pending'"});
  expect_refused([](auto& f) { f.metadata["top_p"] = "2"; }, {"top_p", "2"});
  expect_refused([](auto& f) { f.metadata["min_p"] = "2"; }, {"min_p", "2"});
  expect_refused([](auto& f) { replace(f, "counts.read", at::zeros({12}, at::kInt)); }, {"'counts.read' [11]", "[12]"});
  expect_refused([](auto& f) { replace(f, "counts.read", at::full({11}, -1, at::kInt)); }, {"none negative"});
  expect_refused([](auto& f) { replace(f, "counts.written", at::zeros({11})); }, {"'counts.written'", "Float"});
  expect_refused([](auto& f) { f.tensors.pop_back(); }, {"logits"});
  expect_refused([](auto& f) { f.tensors.emplace_back("state.more", at::zeros({1})); }, {"'state.more'"});
  expect_refused([](auto& f) { f.tensors.erase(f.tensors.begin()); }, {"'memory'"});
  expect_refused([](auto& f) { replace(f, "state.memory", at::zeros({1, 7}, at::kDouble)); }, {"'memory'", "[1, 7]"});
  expect_refused([](auto& f) { replace(f, "state.memory", at::zeros({1, 6}, at::kFloat)); }, {"'memory'", "Float"});
  expect_refused([](auto& f) { replace(f, "logits", at::zeros({12}, at::kDouble)); }, {"'logits'", "[12]"});
  // Each tensor is plausible on its own: only running the model shows that they do not belong together.
  expect_refused([](auto& f) { replace(f, "state.valid", at::ones({1, 5}, at::kBool)); }, {"contradict"});
  expect_refused([](auto& f) { replace(f, "state.window_valid", at::ones({1, 2}, at::kBool)); }, {"contradict"});
  expect_refused([](auto& f) { replace(f, "state.count", at::full({1}, 3, at::kLong)); }, {"contradict"});
}

TEST_F(SessionFile, SeveralSequencesAreRefused) {
  saved_after(10);
  change([](weights::TensorFile& file) {
    for (auto& [name, tensor] : file.tensors) {
      if (name.starts_with("state.") && name != "state.shared") tensor = at::cat({tensor, tensor}, 0);
    }
  });
  expect_error<InputError>([&] { Session::load(path_, model_); }, {"one sequence", "for 2"});
}

}  // namespace
}  // namespace mnemo::infer
