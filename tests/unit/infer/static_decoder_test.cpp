#include "infer/static_decoder.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "infer/progress.h"
#include "tests/support/expect_error.h"
#include "tests/unit/infer/decoding_cases.h"

namespace mnemo::infer {
namespace {

bool has_form(const Case& of) { return of.name.find("grc") == std::string::npos; }

/// The model after `count` tokens of a text, in one segment that stays open.
Progress after(const models::Model& model, int64_t count) {
  Progress progress = begin(model);
  run(model, progress, text(count));
  return progress;
}

TEST(StaticDecoder, ComputesWhatTheModelComputes) {
  const c10::InferenceMode inference;
  for (const Case& of : cases()) {
    if (!has_form(of)) continue;
    const auto model = build(of, 12);
    const std::vector<int64_t> tokens = text(34, 3);
    Progress twin = after(*model, 14);  // a segment, and two tokens of the next
    StaticDecoder decoder(model, twin.state);
    for (size_t i = 14; i < 23; ++i) {
      const std::string where = of.name + " at " + std::to_string(i);
      run(*model, twin, {&tokens[i], 1});
      EXPECT_TRUE(at::allclose(decoder.step(tokens[i]), twin.logits, 1e-3, 1e-3)) << where;
      expect_same_state(decoder.state(), twin.state, where);
    }
    // The model ends the segment from the decoder's state.
    Progress handed = twin;
    handed.state = decoder.state();
    run(*model, handed, {&tokens[23], 10});
    run(*model, twin, {&tokens[23], 10});
    EXPECT_TRUE(at::allclose(handed.logits, twin.logits, 1e-3, 1e-3)) << of.name;
    expect_same_state(handed.state, twin.state, of.name);
  }
}

TEST(StaticDecoder, GrowsPastItsFirstRoom) {
  const c10::InferenceMode inference;
  for (const Case& of : cases()) {
    if (of.name != "relative_pre" && of.name != "xl" && of.name != "softmax_sinusoidal_tanh" && of.name != "abc")
      continue;
    const auto model = build(of, 700);
    Progress twin = after(*model, 3);
    StaticDecoder decoder(model, twin.state);
    const std::vector<int64_t> tokens = text(600, 1);
    for (const int64_t token : tokens) decoder.step(token);
    run(*model, twin, tokens);
    EXPECT_TRUE(at::allclose(decoder.step(5), (run(*model, twin, std::vector<int64_t>{5}), twin.logits), 1e-3, 1e-3))
        << of.name;
    expect_same_state(decoder.state(), twin.state, of.name);
  }
}

TEST(StaticDecoder, ACopyGoesOnAlone) {
  const c10::InferenceMode inference;
  const auto model = build(cases()[2], 12);
  StaticDecoder first(model, after(*model, 2).state);
  first.step(4);
  StaticDecoder second(first);
  const at::Tensor a = first.step(5), b = second.step(6);
  EXPECT_FALSE(at::allclose(a, b));
  StaticDecoder third(model, after(*model, 2).state);
  third = first;
  EXPECT_TRUE(at::equal(third.step(7), first.step(7)));
  second = third;
  EXPECT_TRUE(at::equal(second.step(1), first.step(1)));
  EXPECT_GT(first.num_bytes(), 0);
}

TEST(StaticDecoder, SaysWhatItCannotRun) {
  const c10::InferenceMode inference;
  const auto model = build(cases()[2], 12);
  test::expect_error<base::InputError>([&] { StaticDecoder decoder(model, model->initial_state(1)); },
                                       {"its segment is not open"});
  for (const Case& of : cases()) {
    if (has_form(of)) continue;
    const auto cached = build(of, 12);
    EXPECT_EQ(StaticDecoder::objection(*cached, after(*cached, 2).state), "it has no form of the memory 'grc'")
        << of.name;
  }
}

}  // namespace
}  // namespace mnemo::infer
