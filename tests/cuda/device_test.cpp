// On a CUDA device: the kernels against their naive twins, every model of the conformance suite against the CPU, and
// every golden file. Without a device, all are skipped.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <exception>
#include <functional>
#include <optional>

#include "base/error.h"
#include "core/state.h"
#include "distributed/reducer.h"
#include "infer/progress.h"
#include "infer/session.h"
#include "infer/token_graphs.h"
#include "ops/abc/abc.h"
#include "ops/attention/attention.h"
#include "ops/cuda/attention_parts.h"
#include "ops/naive/abc.h"
#include "ops/naive/attention.h"
#include "tests/cuda/device.h"
#include "tests/support/configurations.h"
#include "tests/support/golden_files.h"
#include "tests/support/numbers.h"
#include "tests/support/run.h"
#include "tests/support/thread_ranks.h"
#include "tests/verify/golden.h"

namespace mnemo {
namespace {

using test::difference;
using test::on_cpu;

void expect_all_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double size = test::largest(at::nan_to_num(on_cpu(expected[i]).to(at::kDouble), 0, 0, 0));
    EXPECT_LE(difference(on_cpu(found[i]), on_cpu(expected[i])), tolerance * (1 + size)) << "tensor " << i;
  }
}

/// The outputs of run(leaves) and the gradients of the leaves, which are on that device.
template <class F>
std::vector<at::Tensor> with_gradients(const std::vector<at::Tensor>& inputs, at::Device device, F run) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs)
    leaves.push_back(input.defined() ? input.to(device).detach().clone().requires_grad_() : input);
  std::vector<at::Tensor> all = run(leaves);
  test::Numbers numbers(5);
  at::Tensor loss = at::zeros({}, at::TensorOptions().device(device));
  for (const at::Tensor& tensor : all) {
    loss = loss + (at::where(at::isfinite(tensor), tensor, at::zeros_like(tensor)) *
                   numbers.normal(tensor.sizes()).to(tensor.scalar_type()).to(device))
                      .sum();
  }
  loss.backward();
  for (const at::Tensor& leaf : leaves) {
    if (leaf.defined()) all.push_back(leaf.grad());
  }
  return all;
}

/// with_gradients() of the same values in float64 on the CPU, rounded to the type of the inputs.
template <class F>
std::vector<at::Tensor> in_float64(const std::vector<at::Tensor>& inputs, F run) {
  std::vector<at::Tensor> wide = inputs;
  for (at::Tensor& input : wide) {
    if (input.defined()) input = input.to(at::kDouble);
  }
  std::vector<at::Tensor> all = with_gradients(wide, at::kCPU, run);
  for (at::Tensor& tensor : all) tensor = tensor.to(inputs.front().scalar_type());
  return all;
}

double tolerance_of(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-11 : dtype == at::kFloat ? 1e-5 : 0.02; }

/// One rank, through the code of several: buckets in bfloat16, a broadcast, and a sum that stays on the CPU.
TEST(Cuda, ARankReducesOnItsDevice) {
  NEEDS_A_DEVICE;
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  test::on_thread_ranks(1, [](const std::shared_ptr<distributed::Group>& group) {
    at::Tensor weight = at::arange(6, at::kFloat).to(at::kCUDA).view({2, 3}).requires_grad_();
    distributed::Reducer reducer(*group, {weight}, {.bf16 = true});
    for (int pass = 0; pass < 2; ++pass) {
      weight.mutable_grad() = at::Tensor();
      reducer.arm();
      weight.square().sum().backward();
      at::Tensor sums = at::full({1}, 3.0, at::kDouble);
      reducer.finish(sums);
      EXPECT_TRUE(at::equal(weight.grad().cpu(), 2 * weight.detach().cpu()));
      EXPECT_EQ(sums.item<double>(), 3.0);
    }
    at::Tensor sent = at::ones({4}, at::device(at::kCUDA));
    group->broadcast(sent, 0);
    group->sum(sent);
    EXPECT_EQ(sent.sum().item<float>(), 4.0F);
  });
}

/// The kernels of ABC's exp form against the naive reference in float64.
void expect_scan_of_abc(at::ScalarType dtype, int64_t time, int64_t slots, int64_t width) {
  SCOPED_TRACE(fmt::format("{} tokens, {} slots, width {}", time, slots, width));
  test::Numbers numbers(3);
  std::vector<at::Tensor> inputs;
  for (const int64_t size : {width, width, width, slots})
    inputs.push_back(numbers.normal({2, 3, time, size}).to(dtype));
  inputs.push_back(numbers.normal({2, 3, slots, width}).to(dtype));
  inputs.push_back(numbers.normal({2, 3, slots, width}).to(dtype));
  inputs.push_back(numbers.normal({2, 3, slots}).to(dtype));
  auto run = [](const std::vector<at::Tensor>& x) {
    const auto abc = x[0].is_cuda() ? ops::abc_causal : ops::abc_causal_naive;
    const ops::AbcOutput out = abc(x[0], x[1], x[2], x[3], {x[4], x[5], x[6]}, {}, ops::AbcActivation::exp, 0.0, 0.3);
    return std::vector<at::Tensor>{out.o, out.memory.k, out.memory.v, out.memory.z};
  };
  const std::vector<at::Tensor> expected = in_float64(inputs, run);
  expect_all_near(with_gradients(inputs, at::kCUDA, run), expected, tolerance_of(dtype));
  if (time > 1) return;
  const at::NoGradGuard no_grad;
  for (at::Tensor& input : inputs) input = input.to(at::kCUDA);
  expect_all_near(run(inputs), {expected.begin(), expected.begin() + 4}, tolerance_of(dtype));
}

/// With many keys, attention is LibTorch's; in a band it is ours. parts: relative, a few heads at a time.
enum class Form { content, relative, parts, band, relative_band, scores_band };

ops::KeyRanges ranges_of(int64_t queries, int64_t keys, Form form) {
  const at::Tensor open = at::ones({queries, keys}, at::kBool).tril(keys - queries);
  if (form < Form::band) return ops::KeyRanges::from_mask(open);
  const ops::KeyRanges band = ops::KeyRanges::from_mask(open.triu(keys - queries - 4));
  EXPECT_EQ(ops::cuda::sees_much(band), keys == 1) << "the band is not for our kernels";
  return band;
}

/// Attention on the device against the naive reference in float64.
void expect_attention(at::ScalarType dtype, int64_t queries, int64_t keys, int64_t width, Form form, bool padded) {
  SCOPED_TRACE(fmt::format("{} queries, {} keys, width {}, form {}, padded {}", queries, keys, width,
                           static_cast<int>(form), padded));
  test::Numbers numbers(4);
  std::vector<at::Tensor> inputs = {numbers.normal({2, 3, queries, width}).to(dtype),
                                    numbers.normal({2, 3, keys, width}).to(dtype),
                                    numbers.normal({2, 3, keys, width}).to(dtype)};
  inputs.resize(7);
  if (form != Form::content && form != Form::band) inputs[3] = numbers.normal({3, width}).to(dtype);
  if (form == Form::relative || form == Form::parts || form == Form::relative_band) {
    inputs[4] = numbers.normal({3, width}).to(dtype);
    inputs[5] = numbers.normal({keys, 3, width}).to(dtype);
  }
  if (form == Form::scores_band) inputs[6] = numbers.normal({2, 3, queries, keys}).to(dtype);
  const at::Tensor valid = padded ? numbers.flags({2, keys}, 0.7) : at::Tensor();
  auto run = [&](const std::vector<at::Tensor>& x) {
    ops::KeyRanges ranges = ranges_of(queries, keys, form);
    if (padded) ranges.valid = valid.to(x[0].device());
    const ops::Positions positions{x[3], x[4], x[5], x[6]};
    if (!x[0].is_cuda()) return std::vector<at::Tensor>{ops::attention_naive(x[0], x[1], x[2], positions, ranges, 0.2)};
    if (form != Form::parts) return std::vector<at::Tensor>{ops::attention(x[0], x[1], x[2], positions, ranges, 0.2)};
    const int64_t two_heads = 2 * queries * keys * static_cast<int64_t>(x[0].element_size());
    return std::vector<at::Tensor>{
        ops::cuda::attention_of_any_size(x[0], x[1], x[2], positions, ranges, 0.2, 0, two_heads)};
  };
  // LibTorch's own kernel gets the positions as a bias in bfloat16, which rounds what they add by up to 1/64.
  const double times = dtype == at::kBFloat16 && inputs[5].defined() ? 2 : 1;
  expect_all_near(with_gradients(inputs, at::kCUDA, run), in_float64(inputs, run), times * tolerance_of(dtype));
}

class CudaKernel : public testing::TestWithParam<at::ScalarType> {};

TEST_P(CudaKernel, ScanOfAbcIsItsNaiveTwin) {
  NEEDS_A_DEVICE;
  for (const int64_t time : {1, 2, 63, 64, 65, 130}) {
    for (const auto& [slots, width] : {std::pair<int64_t, int64_t>{5, 17}, {64, 64}, {64, 128}, {65, 16}, {64, 160}})
      expect_scan_of_abc(GetParam(), time, slots, width);
  }
}

TEST_P(CudaKernel, AttentionIsItsNaiveTwin) {
  NEEDS_A_DEVICE;
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 1}, {2, 70}, {63, 63}, {65, 130}, {130, 130}}) {
    for (const int64_t width : {17, 64, 128}) {
      for (const Form form :
           {Form::content, Form::relative, Form::parts, Form::band, Form::relative_band, Form::scores_band}) {
        for (const bool padded : {false, true}) expect_attention(GetParam(), queries, keys, width, form, padded);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaKernel, testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

// One size of each kernel, for compute-sanitizer's racecheck, under which a kernel takes a thousand times as long.
TEST(CudaRace, ScanOfAbc) {
  NEEDS_A_DEVICE;
  expect_scan_of_abc(at::kFloat, 65, 64, 17);
}

TEST(CudaRace, RelativeAttention) {
  NEEDS_A_DEVICE;
  expect_attention(at::kFloat, 33, 66, 17, Form::relative_band, true);
}

TEST(CudaRace, AttentionWithScores) {
  NEEDS_A_DEVICE;
  expect_attention(at::kFloat, 33, 66, 17, Form::scores_band, false);
}

TEST(CudaRace, AttentionInABand) {
  NEEDS_A_DEVICE;
  expect_attention(at::kFloat, 33, 66, 17, Form::band, false);
}

class CudaModel : public testing::TestWithParam<test::Configuration> {};

// Two training segments and parts of a third: outputs, state and all gradients equal those on the CPU.
TEST_P(CudaModel, ComputesWhatTheCpuComputes) {
  NEEDS_A_DEVICE;
  const at::Tensor tokens = test::Numbers(6).tokens({2, 11}, test::kVocab);
  const test::Plan plan = test::segments({4, 3}) + test::parts({3, 1});
  auto outcome = [&](at::Device device) {
    const auto model = test::make_model(GetParam().options);
    model->parameters().to(at::kDouble, device);
    const test::Outcome out = test::run(*model, tokens.to(device), plan, model->initial_state(2), core::Mode::train);
    model->nll(out.hidden, tokens.to(device)).sum().backward();
    std::vector<at::Tensor> all = {on_cpu(out.hidden)};
    for (const auto& [field, tensor] : out.state.fields()) all.push_back(on_cpu(tensor));
    for (const auto& [name, tensor] : model->parameters().named())
      all.push_back(tensor.grad().defined() ? on_cpu(tensor.grad()) : at::zeros({}, at::kDouble));
    return all;
  };
  expect_all_near(outcome(at::kCUDA), outcome(at::kCPU), 1e-10);
}

TEST_P(CudaModel, GeneratesWhatTheCpuGenerates) {
  NEEDS_A_DEVICE;
  auto text = [&](at::Device device) {
    std::shared_ptr<models::Model> model = test::make_model(GetParam().options);
    model->parameters().to(at::kDouble, device);
    infer::Session session(model, {.temperature = 0.0});
    session.feed(std::vector<int64_t>{1, 5, 2});
    std::vector<int64_t> tokens;
    session.generate(15, [&](int64_t token) {
      tokens.push_back(token);
      return true;
    });
    return tokens;
  };
  EXPECT_EQ(text(at::kCUDA), text(at::kCPU));
}

INSTANTIATE_TEST_SUITE_P(All, CudaModel, testing::ValuesIn(test::configurations()),
                         [](const auto& info) { return info.param.name; });

/// Over three and a half segments, with another session that allocates and frees in between: the logits and the state
/// of tokens that recorded graphs have run.
void expect_graphs(const std::string& name, const std::vector<std::string>& assignments, at::ScalarType dtype) {
  SCOPED_TRACE(name + " in " + c10::toString(dtype));
  constexpr int64_t kSegment = 150;
  models::ModelOptions options = test::configuration(name, assignments).options;
  options.segment_size = kSegment;
  const std::shared_ptr<models::Model> model = test::make_model(options);
  model->parameters().to(dtype, at::kCUDA);
  infer::Session plain(model, {.temperature = 0.0}), by_graphs(model, {.temperature = 0.0});
  plain.set_graphs(false);
  by_graphs.set_graphs(true);
  for (infer::Session* session : {&plain, &by_graphs}) session->feed(std::vector<int64_t>{1, 5, 2});
  std::optional<infer::Session::Mark> mark;
  const auto compare = [&] {
    const at::Tensor expected = on_cpu(plain.logits()), found = on_cpu(by_graphs.logits());
    return difference(found, expected) / (1 + test::largest(expected));
  };
  const double tolerance = dtype == at::kDouble ? 1e-11 : 2e-4;
  for (int64_t i = 0; i < 7 * kSegment / 2; ++i) {
    if (const double found = compare(); !(found <= tolerance)) {
      ADD_FAILURE() << "token " << i << ": logits differ by " << found;
      return;
    }
    const at::Tensor best = std::get<0>(on_cpu(plain.logits()).to(at::kDouble).topk(2));
    if (plain.next() != by_graphs.next()) {
      const double gap = (best[0] - best[1]).item<double>();
      EXPECT_LE(gap, 4 * tolerance) << "token " << i << " differs";  // else either may be rounded to be the largest
      return;
    }
    if (i == 2 * kSegment + 40) mark = by_graphs.mark();
    if (i == 2 * kSegment + 40) plain.rewind(mark.value());
  }
  EXPECT_LE(compare(), tolerance);
  EXPECT_EQ(test::state_difference(core::to(by_graphs.state(), at::kDouble, at::kCPU),
                                   core::to(plain.state(), at::kDouble, at::kCPU), 50 * tolerance),
            "");
  EXPECT_EQ(plain.graph_tokens(), 0);
  EXPECT_GT(by_graphs.graph_tokens(), 3 * (kSegment - 4)) << "few tokens ran by graphs";
  by_graphs.rewind(mark.value());
  plain.rewind(mark.value());
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(plain.next(), by_graphs.next());
}

// A refusal says which operation the device would not record.
TEST(CudaGraph, TokensCanBeRecorded) {
  NEEDS_A_DEVICE;
  const c10::InferenceMode inference;
  const auto expect_recording = [](const std::string& name, const std::vector<std::string>& assignments) {
    SCOPED_TRACE(name);
    models::ModelOptions options = test::configuration(name, assignments).options;
    options.segment_size = 12;
    const std::shared_ptr<models::Model> model = test::make_model(options);
    model->parameters().to(at::kFloat, at::kCUDA);
    infer::TokenGraphs graphs(model, [](const infer::TokenGraphs::Work& work) {
      try {
        return ops::cuda::recorded(at::kCUDA, work);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
        throw;
      }
    });
    infer::Progress progress = infer::begin(*model);
    for (int64_t i = 0; i < 8; ++i) {
      progress.pending = i;
      progress.append(i);
      graphs.run_pending(progress);
    }
    EXPECT_GT(graphs.tokens(), 0);
  };
  expect_recording("softmax", {"backbone.attention.type=softmax", "backbone.position.type=sinusoidal"});
  expect_recording("relative", {"backbone.attention.type=relative"});
  expect_recording("abc", {"backbone.attention.type=abc", "backbone.attention.num_slots=3"});
}

TEST(CudaGraph, TokensAreThoseOfTheOrdinaryStep) {
  NEEDS_A_DEVICE;
  const std::string slots = "backbone.attention.num_slots=3", tokens = "memory[0].num_mem_tokens=2",
                    cache = "memory[0].mem_len=32";
  const auto with = [](const std::string& attention, std::vector<std::string> more) {
    more.insert(more.begin(), "backbone.attention.type=" + attention);
    return more;
  };
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    expect_graphs("softmax", with("softmax", {"backbone.position.type=sinusoidal"}), dtype);
    expect_graphs("learned", with("softmax", {"backbone.position.type=learned", "backbone.position.max_len=150"}),
                  dtype);
    expect_graphs("rotary", with("softmax", {"backbone.attention.rotary.base=50.0", "backbone.norm=pre"}), dtype);
    expect_graphs("transformer_xl", with("relative", {"memory[0].type=segment_cache", cache}), dtype);
    expect_graphs("rmt", with("relative", {"memory[0].type=recurrent_tokens", tokens}), dtype);
    expect_graphs("abc", with("abc", {slots}), dtype);
    expect_graphs("grc", with("softmax", {"memory[0].type=grc", "memory[0].cache_len=3"}), dtype);
  }
}

TEST(CudaGraph, WhatCannotBeRecordedThrowsAndTheDeviceGoesOn) {
  NEEDS_A_DEVICE;
  const at::Tensor x = at::ones({4}, at::device(at::kCUDA));
  EXPECT_ANY_THROW(ops::cuda::recorded(x.device(), [&] { x.add_(x.sum().item<double>()); }));
  x.fill_(2);
  EXPECT_EQ(x.sum().item<double>(), 8);
  EXPECT_NO_THROW(at::rand({4}, x.options()));
  const std::function<void()> again = ops::cuda::recorded(x.device(), [&] { x.mul_(2); });
  EXPECT_EQ(x.sum().item<double>(), 16);
  for (int i = 0; i < 2; ++i) again();
  EXPECT_EQ(x.sum().item<double>(), 64);
}

// The work throws while it is recorded, of itself: nothing has made the recording invalid.
TEST(CudaGraph, AnErrorOfTheWorkEndsTheRecordingAndTheDeviceGoesOn) {
  NEEDS_A_DEVICE;
  const at::Tensor x = at::ones({4}, at::device(at::kCUDA));
  for (int attempt = 0; attempt < 2; ++attempt) {
    int calls = 0;
    EXPECT_THROW(ops::cuda::recorded(x.device(),
                                     [&] {
                                       x.copy_(x * 2);
                                       if (++calls == 2) base::input_error("a token's shapes changed");
                                     }),
                 base::InputError);
    EXPECT_EQ(calls, 2);
  }
  EXPECT_EQ(x.sum().item<double>(), 16);
  const std::function<void()> again = ops::cuda::recorded(x.device(), [&] { x.copy_(x * 2); });
  again();
  EXPECT_EQ(x.sum().item<double>(), 64);
}

class CudaGolden : public testing::TestWithParam<std::string> {};

TEST_P(CudaGolden, WithinItsTolerance) {
  NEEDS_A_DEVICE;
  const verify::GoldenReport report = verify::verify_golden(GetParam(), at::kCUDA);
  EXPECT_FALSE(report.groups.empty());
  for (const auto& group : report.groups)
    EXPECT_LE(group.error, group.tolerance) << report.what << ": " << group.name << ", worst " << group.worst;
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, testing::ValuesIn(test::golden_files()));

struct RowsState {
  at::Tensor rows;
  template <class F>
  void visit(F&& f) {
    f("rows", rows, "B M");
  }
};

TEST(Cuda, StatesAreSelectedByAnIndexOfTheCpu) {
  NEEDS_A_DEVICE;
  const core::State state(RowsState{at::arange(6, at::TensorOptions(at::kFloat).device(at::kCUDA)).view({2, 3})});
  const core::State second = core::select_batch(state, at::tensor({1}, at::kLong));
  EXPECT_TRUE(at::equal(on_cpu(second.as<RowsState>().rows), at::tensor({3.0F, 4.0F, 5.0F}).view({1, 3})));
}

}  // namespace
}  // namespace mnemo
