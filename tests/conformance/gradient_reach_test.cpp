// Laws 5 and 6: a loss reaches exactly as many segments back as the options say, and never through a segment cache.
#include "tests/conformance/suite.h"
#include "train/segment_bptt.h"

namespace mnemo::test {
namespace {

constexpr int64_t kSegments = 5, kTokens = 3;

/// A layer stack from rows to rows, or with "kind=model" a whole model, and how far back a loss must reach; -1: to the
/// start.
struct Reach {
  std::string name;
  std::vector<std::string> assignments;
  int64_t depth;
};
std::ostream& operator<<(std::ostream& stream, const Reach& reach) { return stream << reach.name; }

std::vector<Reach> reaches() {
  const std::string relative = "backbone.attention.type=relative", softmax = "backbone.attention.type=softmax",
                    abc = "backbone.attention.type=abc", slots = "backbone.attention.num_slots=3",
                    rmt = "memory[0].type=recurrent_tokens", two = "memory[0].num_mem_tokens=2",
                    causal = "memory[0].block_mask=causal", xl = "memory[1].type=segment_cache",
                    six = "memory[1].mem_len=6", grc = "memory[0].type=grc", grc_len = "memory[0].cache_len=3",
                    encoder = "backbone.type=encoder";
  // The block of an encoder has special tokens, which a layer stack does not have.
  const std::vector<std::string> block = {"kind=model",
                                          encoder,
                                          softmax,
                                          rmt,
                                          two,
                                          "memory[0].layout=encoder",
                                          "memory[0].cls_token=1",
                                          "memory[0].sep_token=2",
                                          "memory[0].pad_token=0"};
  const auto with = [](std::vector<std::string> list, const std::vector<std::string>& more) {
    list.insert(list.end(), more.begin(), more.end());
    return list;
  };
  std::vector<Reach> list;
  for (const auto& [word, depth] :
       std::vector<std::pair<std::string, int64_t>>{{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"full", -1}}) {
    const std::string bptt = "memory[0].bptt_depth=" + word, slots_bptt = "backbone.attention.bptt_depth=" + word;
    list.push_back({"rmt_" + word, {relative, rmt, two, bptt}, depth});
    list.push_back({"rmt_xl_" + word, {relative, rmt, two, bptt, xl, six}, depth});
    list.push_back(
        {"rmt_xl_read_" + word, {relative, rmt, two, bptt, xl, six, "memory[0].read_mem_from_cache=true"}, depth});
    list.push_back({"rmt_causal_" + word, {softmax, rmt, two, causal, bptt}, depth});
    list.push_back({"abc_" + word, {abc, slots, slots_bptt}, depth});
    list.push_back({"abc_relu_" + word, {abc, slots, slots_bptt, "backbone.attention.control.activation=relu"}, depth});
    // Controls with every kind of state; a window must hold more tokens than the segments have.
    const std::string many = "backbone.attention.num_slots=20", control = "backbone.attention.control.";
    list.push_back({"abc_random_" + word, {abc, slots, slots_bptt, control + "type=random"}, depth});
    list.push_back({"abc_gated_" + word, {abc, slots, slots_bptt, control + "gate=true"}, depth});
    list.push_back({"abc_clustering_" + word, {abc, slots, slots_bptt, control + "type=clustering"}, depth});
    list.push_back({"abc_linformer_" + word, {abc, slots, slots_bptt, control + "type=linformer"}, depth});
    list.push_back({"abc_window_" + word, {abc, many, slots_bptt, control + "type=window"}, depth});
    list.push_back({"abc_dilated_" + word,
                    {abc, many, slots_bptt, control + "type=dilated", "backbone.attention.mask_empty_slots=true"},
                    depth});
    list.push_back({"abc_local_to_global_" + word,
                    {abc, "backbone.attention.num_slots=5", slots_bptt, control + "type=local_to_global",
                     control + "global_positions=[1,4,7,10,13]"},
                    depth});
    list.push_back(
        {"abc_compressive_" + word,
         {abc, "backbone.attention.num_slots=8", slots_bptt, control + "type=compressive", control + "compression=2"},
         depth});
    list.push_back({"encoder_rmt_" + word, with(block, {bptt}), depth});
    list.push_back({"encoder_rmt_authors_" + word, with(block, {bptt, "memory[0].memory_position=authors"}), depth});
    list.push_back(
        {"encoder_rmt_grc_" + word, with(block, {bptt, "memory[1].type=grc", "memory[1].cache_len=3"}), depth});
    const std::string rotary = "backbone.attention.rotary.base=50.0";
    list.push_back({"abc_rotary_" + word, {abc, slots, slots_bptt, rotary}, depth});
    list.push_back({"linear_rotary_" + word, {"backbone.attention.type=linear", slots_bptt, rotary}, depth});
    list.push_back({"linear_" + word, {"backbone.attention.type=linear", slots_bptt}, depth});
    const std::string per_sequence = "memory[0].lifetime=sequence";
    list.push_back({"grc_sequence_" + word, {relative, grc, grc_len, per_sequence, bptt}, depth});
    list.push_back({"grc_sequence_xl_" + word, {softmax, grc, grc_len, per_sequence, bptt, xl, six}, depth});
    // Two memories with two depths: the larger one counts.
    const int64_t both = depth < 0 ? -1 : std::max<int64_t>(depth, 1);
    list.push_back(
        {"abc_" + word + "_rmt_1", {abc, slots, slots_bptt, rmt, two, causal, "memory[0].bptt_depth=1"}, both});
    list.push_back({"abc_" + word + "_grc_1", {abc, slots, slots_bptt, grc, grc_len, "memory[0].bptt_depth=1"}, both});
    list.push_back({"abc_" + word + "_grc_0", {abc, slots, slots_bptt, grc, grc_len, "memory[0].bptt_depth=0"}, depth});
    list.push_back(
        {"rmt_" + word + "_grc", {relative, rmt, two, bptt, "memory[1].type=grc", "memory[1].cache_len=3"}, both});
  }
  list.push_back({"none", {relative}, 0});
  for (const std::string attention : {"softmax", "abc", "linear", "lsh", "bigbird", "linformer"}) {
    list.push_back({"encoder_" + attention, {encoder, "backbone.attention.type=" + attention}, 0});
  }
  list.push_back({"window", {"backbone.attention.type=sliding_window"}, 0});
  list.push_back({"lsh", {"backbone.attention.type=lsh"}, 0});
  list.push_back({"xl", {relative, "memory[0].type=segment_cache", "memory[0].mem_len=32"}, 0});
  list.push_back(
      {"xl_softmax_pre", {softmax, "backbone.norm=pre", "memory[0].type=segment_cache", "memory[0].mem_len=32"}, 0});
  list.push_back({"attention_cache", {softmax, "memory[0].type=attention_cache", "memory[0].mem_len=32"}, 0});
  for (const std::string function : {"mean_pooling", "max_pooling", "conv", "dilated_conv", "most_used"}) {
    list.push_back({"compressive_" + function,
                    {relative, "memory[0].type=compressive", "memory[0].mem_len=2", "memory[0].compressed_len=9",
                     "memory[0].compression_rate=2", "memory[0].compression=" + function},
                    0});
  }
  list.push_back({"mt_xl_read",
                  {relative, "memory[0].type=memory_tokens", two, "memory[0].read_mem_from_cache=true", xl, six},
                  0});
  for (const char* lifetime : {"model", "sequence"}) {
    const std::string lives = std::string("memory[0].lifetime=") + lifetime;
    list.push_back({std::string("grc_") + lifetime, {relative, grc, grc_len, lives}, 1});
    list.push_back(
        {std::string("grc_bptt_0_") + lifetime, {relative, grc, grc_len, lives, "memory[0].bptt_depth=0"}, 0});
    list.push_back({std::string("encoder_grc_") + lifetime, {encoder, softmax, grc, grc_len, lives}, 0});
    list.push_back({std::string("grc_xl_") + lifetime, {softmax, grc, grc_len, lives, xl, six}, 1});
  }
  return list;
}

std::unique_ptr<models::Model> layer_stack(const Reach& reach) {
  auto assignments = reach.assignments;
  assignments.insert(assignments.begin(), "kind=layer_stack");
  return make_model(configuration(reach.name, assignments).options);
}

class GradientReach : public testing::TestWithParam<Reach> {};

TEST_P(GradientReach, IsExactlyTheDepth) {
  const auto model = layer_stack(GetParam());
  for (const int64_t from : {kSegments - 1, int64_t{2}}) {
    Numbers numbers(4);
    std::vector<train::BpttSegment> segments(kSegments);
    for (auto& segment : segments) {
      segment.input.rows = numbers.normal({2, kTokens, 8}).set_requires_grad(true);
      segment.input.mode = core::Mode::train;
    }
    const at::Tensor weights = numbers.normal({2, kTokens, 8});
    train::backward_segments(
        *model, segments, model->initial_state(2), [&](const core::StepResult& step, size_t index) {
          return static_cast<int64_t>(index) == from ? (step.hidden * weights).sum() : at::Tensor();
        });
    for (int64_t s = 0; s < kSegments; ++s) {
      const at::Tensor& gradient = segments[static_cast<size_t>(s)].input.rows.grad();
      const bool reached = gradient.defined() && largest(gradient) > 0;
      const bool expected = s <= from && (GetParam().depth < 0 || s >= from - GetParam().depth);
      EXPECT_EQ(reached, expected) << "loss of segment " << from << ", rows of segment " << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GradientReach, testing::ValuesIn(reaches()),
                         [](const auto& info) { return info.param.name; });

TEST(LearnedMemory, IsReachedByTheFirstLossesOnly) {
  // The learned tokens that enter segment 0 are not a boundary: the loss of segment s reaches them if s <= depth. In
  // the paper's Memory Transformer they precede every segment.
  struct Case {
    std::vector<std::string> assignments;
    int64_t depth;  ///< -1: every loss
  };
  const std::string two = "memory[0].num_mem_tokens=2", rmt = "memory[0].type=recurrent_tokens",
                    mt = "memory[0].type=memory_tokens";
  for (const Case& one : std::vector<Case>{{{rmt, two, "memory[0].bptt_depth=0"}, 0},
                                           {{rmt, two, "memory[0].bptt_depth=2"}, 2},
                                           {{rmt, two}, -1},
                                           {{mt, two}, -1},
                                           {{mt, two, "memory[0].variant=authors", "memory[0].bptt_depth=1"}, 1},
                                           {{mt, two, "memory[0].variant=authors"}, -1}}) {
    for (int64_t from = 0; from < kSegments; ++from) {
      const auto model = layer_stack({"stack", one.assignments, 0});
      Numbers numbers(4);
      std::vector<train::BpttSegment> segments(kSegments);
      for (auto& segment : segments) segment.input.rows = numbers.normal({2, kTokens, 8});
      train::backward_segments(*model, segments, model->initial_state(2),
                               [&](const core::StepResult& step, size_t index) {
                                 return static_cast<int64_t>(index) == from ? step.hidden.square().sum() : at::Tensor();
                               });
      const at::Tensor gradient = model->parameters().find("memory.tokens").grad();
      const bool reached = gradient.defined() && largest(gradient) > 0;
      EXPECT_EQ(reached, one.depth < 0 || from <= one.depth)
          << testing::PrintToString(one.assignments) << ", loss " << from;
    }
  }
}

TEST(GrcGradient, ACacheThatNoLossCrossesHoldsNoGraph) {
  for (const std::string lifetime : {"model", "sequence"}) {
    for (const bool crosses : {false, true}) {
      const auto model = layer_stack({"grc",
                                      {"memory[0].type=grc", "memory[0].cache_len=3", "memory[0].lifetime=" + lifetime,
                                       crosses ? "memory[0].bptt_depth=1" : "memory[0].bptt_depth=0"},
                                      0});
      const at::Tensor rows = Numbers(3).normal({2, 4, 8});
      const auto fields = run(*model, rows, whole(4), model->initial_state(2), core::Mode::train).state.fields();
      ASSERT_FALSE(fields.empty());
      for (const auto& [field, tensor] : fields)
        EXPECT_EQ(tensor.requires_grad(), crosses) << field.path << ", " << lifetime;
    }
  }
}

TEST(SegmentCacheGradient, StopsEvenAtACacheThatIsHandedIn) {
  const auto model = layer_stack({"xl", {"memory[0].type=segment_cache", "memory[0].mem_len=6"}, 0});
  const core::State warm = warm_state(*model, 2);
  const core::State given = warm.map([](const core::Field&, const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.clone().set_requires_grad(true) : tensor;
  });
  const at::Tensor rows = Numbers(3).normal({2, 4, 8}).set_requires_grad(true);
  const Outcome result = run(*model, rows, whole(4), given);
  result.hidden.square().sum().backward();
  EXPECT_GT(largest(rows.grad()), 0.0);
  for (const auto& [field, tensor] : given.fields()) EXPECT_FALSE(tensor.grad().defined()) << field.path;
  for (const auto& [field, tensor] : result.state.fields()) EXPECT_FALSE(tensor.requires_grad()) << field.path;
}

}  // namespace
}  // namespace mnemo::test
