#include "train/segment_bptt.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "base/error.h"
#include "tests/unit/train/chain_model.h"

namespace mnemo::train {
namespace {

using test::ChainModel;
using test::ChainState;

constexpr int64_t kBatch = 2;

struct Case {
  std::vector<BpttSegment> segments;
  core::State state;
};

/// Random inputs that require gradients; with `given`, also a state that requires one.
Case make_case(const ChainModel& model, int64_t count, bool given = false, int64_t reset_at = -1) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  at::Generator numbers = generator;
  numbers.set_current_seed(5);
  Case made;
  for (int64_t s = 0; s < count; ++s) {
    BpttSegment segment;
    segment.input.rows = at::randn({kBatch, 2, ChainModel::kDim}, numbers, options).set_requires_grad(true);
    if (s == reset_at) segment.reset = at::arange(kBatch) == 1;
    made.segments.push_back(segment);
  }
  made.state = model.initial_state(kBatch);
  if (given) {
    made.state = made.state.map([&](const core::Field&, const at::Tensor& tensor) {
      return at::randn(tensor.sizes(), numbers, options).set_requires_grad(true);
    });
  }
  return made;
}

at::Tensor square_loss(const core::StepResult& step, size_t index) {
  return step.hidden.square().sum() * (1.0 + static_cast<double>(index));
}

/// The definition, loss by loss: for loss s, run everything again with boundary b = s - h + 1 closed to the fields with
/// depth < h.
void by_definition(const ChainModel& model, const Case& input, const SegmentLoss& loss) {
  for (size_t s = 0; s < input.segments.size(); ++s) {
    core::State state = input.state;
    for (size_t t = 0; t <= s; ++t) {
      const auto hop = static_cast<int64_t>(s - t + 1);
      if (t > 0) {
        state = state.map([&](const core::Field& field, const at::Tensor& tensor) {
          const int64_t depth = model.bptt_depth(field.path);
          return depth >= 0 && depth < hop ? tensor.detach() : tensor;
        });
      }
      const core::StepResult step = model.forward(input.segments[t].input,
                                                  start_documents(model, state, input.segments[t].reset));
      if (t == s) {
        const at::Tensor value = loss(step, s);
        if (value.defined()) value.backward();
      }
      state = step.state;
    }
  }
}

/// Returns all gradients and clears them.
std::vector<at::Tensor> take_gradients(const ChainModel& model, Case& input) {
  std::vector<at::Tensor> gradients;
  const auto take = [&](at::Tensor tensor) {
    gradients.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::zeros_like(tensor));
    tensor.mutable_grad().reset();
  };
  for (const auto& [name, tensor] : model.parameters().named()) take(tensor);
  for (BpttSegment& segment : input.segments) take(segment.input.rows);
  for (const auto& [field, tensor] : input.state.fields()) {
    if (tensor.requires_grad() && tensor.is_leaf()) take(tensor);
  }
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double scale = 1 + expected[i].abs().max().item<double>();
    EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), 1e-12 * scale) << what << ", gradient " << i;
  }
}

TEST(SegmentBptt, SlidingIsTheDefinitionForEveryPairOfDepths) {
  for (const int64_t a : {-1, 0, 1, 2, 3, 9}) {
    for (const int64_t b : {-1, 0, 1, 2, 4}) {
      for (const bool given : {false, true}) {
        const ChainModel model({{"a", a}, {"b", b}, {"shared", 0}});
        Case input = make_case(model, 5, given, 2);
        by_definition(model, input, square_loss);
        const auto expected = take_gradients(model, input);
        backward_segments(model, input.segments, input.state, square_loss);
        expect_equal(take_gradients(model, input), expected, fmt::format("depths {} and {}, given {}", a, b, given));
      }
    }
  }
}

TEST(SegmentBptt, LastLossReachesExactlyKSegmentsBack) {
  for (const int64_t k : {0, 1, 2, 3}) {
    const ChainModel model({{"a", k}, {"b", 0}, {"shared", 0}});
    Case input = make_case(model, 5);
    const auto last_only = [](const core::StepResult& step, size_t index) {
      return index == 4 ? step.hidden.sum() : at::Tensor();
    };
    const BpttResult result = backward_segments(model, input.segments, input.state, last_only);
    for (int64_t s = 0; s < 5; ++s) {
      const at::Tensor& gradient = input.segments[static_cast<size_t>(s)].input.rows.grad();
      const bool reached = gradient.defined() && gradient.abs().max().item<double>() > 0;
      EXPECT_EQ(reached, s >= 4 - k) << "depth " << k << ", segment " << s;
      EXPECT_EQ(result.losses[static_cast<size_t>(s)].defined(), s == 4);
    }
    EXPECT_FALSE(model.parameters().find("start").grad().defined());
  }
}

TEST(SegmentBptt, LearnedFirstStateIsNoBoundary) {
  const ChainModel model({{"a", 2}, {"b", 0}, {"shared", 0}});
  const auto reaches = [&](size_t from, int64_t reset_at) {
    Case input = make_case(model, 5, false, reset_at);
    backward_segments(model, input.segments, input.state, [&](const core::StepResult& step, size_t index) {
      return index == from ? step.hidden.sum() : at::Tensor();
    });
    const at::Tensor gradient = model.parameters().find("start").grad();
    model.parameters().zero_grad();
    return gradient.defined() && gradient.abs().max().item<double>() > 0;
  };
  EXPECT_TRUE(reaches(0, -1));
  EXPECT_TRUE(reaches(2, -1));
  EXPECT_FALSE(reaches(3, -1));
  EXPECT_TRUE(reaches(4, 2));  // after a reset at segment 2: from segment 2 + k
  EXPECT_FALSE(reaches(4, 1));
}

TEST(SegmentBptt, ChunkedCutsEveryKPlusFirstBoundary) {
  for (const int64_t k : {-1, 0, 1, 2}) {
    const ChainModel model({{"a", k}, {"b", k}, {"shared", 0}});
    Case input = make_case(model, 5, true);
    core::State state = input.state;
    for (size_t s = 0; s < 5; ++s) {
      // Chunks are segments [0, k], [k+1, 2k+1], ...
      if (k >= 0 && s > 0 && s % static_cast<size_t>(k + 1) == 0) state = core::detach(state);
      const core::StepResult step = model.forward(input.segments[s].input, state);
      square_loss(step, s).backward({}, true);
      state = step.state;
    }
    const auto expected = take_gradients(model, input);
    backward_segments(model, input.segments, input.state, square_loss, BpttForm::chunked);
    expect_equal(take_gradients(model, input), expected, fmt::format("chunked, depth {}", k));
  }
}

TEST(SegmentBptt, LossesAndFinalStateAreThoseOfAPlainRun) {
  for (const BpttForm form : {BpttForm::sliding, BpttForm::chunked}) {
    const ChainModel model({{"a", 1}, {"b", -1}, {"shared", 0}});
    Case input = make_case(model, 4, false, 1);
    const BpttResult result = backward_segments(model, input.segments, input.state, square_loss, form);
    core::State state = input.state;
    for (size_t s = 0; s < 4; ++s) {
      const core::StepResult step = model.forward(input.segments[s].input,
                                                  start_documents(model, state, input.segments[s].reset));
      EXPECT_TRUE(at::equal(result.losses[s], square_loss(step, s)));
      EXPECT_FALSE(result.losses[s].requires_grad());
      state = step.state;
    }
    EXPECT_TRUE(at::equal(result.state.as<ChainState>().a, state.as<ChainState>().a));
    EXPECT_TRUE(at::equal(result.state.as<ChainState>().b, state.as<ChainState>().b));
    EXPECT_FALSE(result.state.as<ChainState>().a.requires_grad());
  }
}

TEST(SegmentBptt, GraphsAreFreedAsTheListGoes) {
  const ChainModel model({{"a", 1}, {"b", 1}, {"shared", 0}});
  Case input = make_case(model, 12);
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> graphs;
  size_t most = 0;
  backward_segments(model, input.segments, input.state, [&](const core::StepResult& step, size_t) {
    graphs.emplace_back(step.hidden.getIntrusivePtr());
    size_t alive = 0;
    for (const auto& graph : graphs) alive += graph.expired() ? 0 : 1;
    most = std::max(most, alive);
    return step.hidden.square().sum();  // keeps hidden alive as long as the graph
  });
  EXPECT_LE(most, 3U);  // this segment's and those of the k + 1 before it
}

TEST(SegmentBptt, AnEmptyListHasNoLosses) {
  const ChainModel model({{"a", 1}, {"b", 1}, {"shared", 0}});
  EXPECT_TRUE(backward_segments(model, {}, model.initial_state(1), square_loss).losses.empty());
}

}  // namespace
}  // namespace mnemo::train
