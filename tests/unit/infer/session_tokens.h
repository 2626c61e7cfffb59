#pragma once

#include <memory>
#include <vector>

#include "infer/session.h"
#include "tests/unit/infer/fake_model.h"

/// A model and tokens for tests of sessions.
namespace mnemo::infer {

inline std::shared_ptr<test::FakeModel> model(int64_t segment_size = 4, uint64_t seed = 1) {
  return std::make_shared<test::FakeModel>(11, segment_size, seed);
}

inline std::vector<int64_t> prompt(int64_t length) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back((i * i + 3 * i) % 11);
  return tokens;
}

inline std::vector<int64_t> take(Session& session, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(session.next());
  return tokens;
}

inline const GenerateOptions kSampled = {.temperature = 1.5, .seed = 3};
inline const GenerateOptions kPenalised = {.temperature = 1.5, .repetition_penalty = 1.1, .seed = 3};

}  // namespace mnemo::infer
