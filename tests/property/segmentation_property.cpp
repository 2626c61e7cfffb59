// Random ways to divide a text into segments and parts, and to batch sequences, on some configurations of the
// conformance suite.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "tests/property/between.h"
#include "tests/support/configurations.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"

namespace mnemo::test {
namespace {

Configuration any_configuration(const std::vector<std::string>& names) {
  const std::string name = *rc::gen::elementOf(names);
  const auto found = std::find_if(configurations().begin(), configurations().end(),
                                  [&](const auto& c) { return c.name == name; });
  RC_ASSERT(found != configurations().end());
  return *found;
}

/// Lengths of at least 1 with the given sum.
std::vector<int64_t> any_cut(int64_t total) {
  std::vector<int64_t> lengths;
  while (total > 0) {
    lengths.push_back(between<int64_t>(1, total + 1));
    total -= lengths.back();
  }
  return lengths;
}

Plan any_parts(int64_t length) { return parts(any_cut(length)); }

RC_GTEST_PROP(SegmentationProperty, PartsOfASegmentNeverShow, ()) {
  const at::NoGradGuard no_grad;
  const auto config = any_configuration({"relative_segment_cache_recurrent_tokens_grc", "rmt_xl_tokens",
                                         "rmt_causal_learned", "abc_rmt_grc", "xl_short", "mt_xl_read", "grc_sequence",
                                         "abc_sigmoid", "abc_dilated_masked"});
  auto model = make_model(config.options);
  const std::vector<int64_t> lengths = any_cut(between<int64_t>(1, 14));
  Plan in_parts;
  int64_t total = 0;
  for (const int64_t length : lengths) {
    in_parts = in_parts + any_parts(length);
    total += length;
  }
  const auto mode = *rc::gen::element(core::Mode::evaluate, core::Mode::train);
  const at::Tensor tokens = Numbers(*rc::gen::arbitrary<uint64_t>()).tokens({2, total}, kVocab);
  const Outcome expected = run(*model, tokens, segments(lengths), model->initial_state(2), mode);
  const Outcome found = run(*model, tokens, in_parts, model->initial_state(2), mode);
  RC_ASSERT(difference(found.hidden, expected.hidden) <= 1e-12);
  RC_ASSERT(state_difference(found.state, expected.state, 1e-12).empty());
}

RC_GTEST_PROP(SegmentationProperty, SegmentsDoNotShowWhereTheStateIsExact, ()) {
  const at::NoGradGuard no_grad;
  const auto config = any_configuration({"abc", "abc_relu", "abc_grc", "abc_random_masked", "abc_linformer",
                                         "abc_clustering", "abc_window", "abc_dilated", "abc_compressive",
                                         "xl_same_length", "xl_pre", "relative_segment_cache_grc"});
  auto model = make_model(config.options);
  const int64_t total = between<int64_t>(1, 14);
  Plan plan;
  for (const int64_t length : any_cut(total)) plan = plan + any_parts(length);
  const at::Tensor tokens = Numbers(*rc::gen::arbitrary<uint64_t>()).tokens({2, total}, kVocab);
  const Outcome expected = run(*model, tokens, whole(total), model->initial_state(2));
  RC_ASSERT(difference(run(*model, tokens, plan, model->initial_state(2)).hidden, expected.hidden) <= 1e-12);
}

RC_GTEST_PROP(SegmentationProperty, SequencesJoinedAtAnyPlaceRunAsAlone, ()) {
  const at::NoGradGuard no_grad;
  const auto config = any_configuration({"relative_segment_cache_recurrent_tokens_grc", "rmt_xl_read_tokens",
                                         "rmt_causal_learned", "abc_rmt", "xl_short", "xl_learned", "grc_sequence",
                                         "mt_xl_authors_read_tokens", "abc_dilated_masked", "abc_clustering"});
  auto model = make_model(config.options);
  Numbers numbers(*rc::gen::arbitrary<uint64_t>());
  const int64_t count = between<int64_t>(1, 5);
  std::vector<core::State> states;
  std::vector<at::Tensor> alone;
  const at::Tensor more = numbers.tokens({count, 3}, kVocab);
  const Plan after = {{2, {false, false}}, {1, {false, false}}};
  for (int64_t row = 0; row < count; ++row) {
    const Plan plan = segments(any_cut(between<int64_t>(0, 6))) + Plan{{between<int64_t>(1, 5), {true, false}}};
    int64_t length = 0;
    for (const Call& call : plan) length += call.length;
    states.push_back(run(*model, numbers.tokens({1, length}, kVocab), plan, model->initial_state(1)).state);
    alone.push_back(run(*model, more.narrow(0, row, 1), after, states.back()).hidden);
  }
  RC_ASSERT(difference(run(*model, more, after, core::concat_batch(states)).hidden, at::cat(alone)) <= 1e-12);
}

}  // namespace
}  // namespace mnemo::test
