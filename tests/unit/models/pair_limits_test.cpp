// A translation model runs the longest source and target that it declares, and no longer ones.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "core/input.h"
#include "models/model.h"
#include "tests/support/pair_models.h"

namespace mnemo::models {
namespace {

base::Node option_table(const std::string& text) { return base::parse_toml("value = " + text, "test").at("value"); }

struct Limited {
  std::string name;
  std::string encoder = "{type=\"softmax\"}", decoder = encoder, cross = encoder;
  std::vector<std::string> memory = {};
  int64_t segment_size = 0, learned = 0;
  int64_t source = 0, target = 0;  ///< positions of the model; 0: any number
};

const std::string kLinformer = "{type=\"linformer\", num_slots=3, max_len=12, bias=true}";
const std::string kIdentity = "{type=\"abc\", num_slots=11, control={type=\"identity\"}}";
const std::string
    kRecurrent = "{type=\"recurrent_tokens\", num_mem_tokens=2, layout=\"encoder\", memory_position=\"front\"}";
const std::string kSoftmax = "{type=\"softmax\"}";

const std::vector<Limited> kCases = {
    {.name = "any"},
    {.name = "learned", .learned = 10, .source = 8, .target = 8},
    {.name = "learned_recurrent", .memory = {kRecurrent}, .learned = 12, .source = 8, .target = 10},
    {.name = "learned_segments", .memory = {kRecurrent}, .segment_size = 3, .learned = 13, .source = 9, .target = 11},
    {.name = "encoder", .encoder = kLinformer, .decoder = kSoftmax, .cross = kSoftmax, .source = 12},
    {.name = "encoder_segments", .encoder = kLinformer, .decoder = kSoftmax, .cross = kSoftmax, .segment_size = 12},
    {.name = "cross", .cross = kLinformer, .source = 12},
    {.name = "cross_recurrent", .cross = kLinformer, .memory = {kRecurrent}, .source = 10},
    {.name = "cross_segments", .cross = kLinformer, .memory = {kRecurrent}, .segment_size = 3, .source = 6},
    {.name = "slots", .encoder = kSoftmax, .decoder = kIdentity, .cross = kIdentity, .source = 11, .target = 11},
};

struct PairLimits : testing::TestWithParam<Limited> {};

TEST_P(PairLimits, AreWhatTheModelRuns) {
  const Limited& limited = GetParam();
  ModelOptions options = test::pair_options();
  EncoderDecoderOptions& pairs = options.backbone.pairs();
  pairs.encoder.attention = option_table(limited.encoder);
  pairs.decoder.attention = option_table(limited.decoder);
  pairs.decoder.cross_attention = option_table(limited.cross);
  for (const std::string& memory : limited.memory)
    pairs.encoder.memory.push_back(ModelOptions::memory_types().read(option_table(memory)));
  if (limited.segment_size > 0) pairs.encoder.segment_size = limited.segment_size;
  if (limited.learned > 0) {
    pairs.position.type = backbones::PositionOptions::Type::learned;
    pairs.position.max_len = limited.learned;
  }
  const auto model = build(base::read_typed_options<ModelOptions>(base::write_options(options)), 3);
  const core::PairInput& input = core::pair_input(model->input());
  EXPECT_EQ(input.max_source.value_or(0), limited.source);
  EXPECT_EQ(input.max_target.value_or(0), limited.target);
  const at::NoGradGuard no_grad;
  const auto run = [&](int64_t source, int64_t target) {
    core::Segment segment = test::pair_segment(test::pair_source(1, source),
                                               at::randint(4, 19, {1, target}, at::kLong));
    model->forward(segment, model->initial_state(1));
  };
  run(input.max_source.value_or(40), input.max_target.value_or(40));
  if (limited.source > 0) {
    EXPECT_THROW(run(limited.source + 1, 1), base::InputError);
  }
  if (limited.target > 0) {
    EXPECT_THROW(run(1, limited.target + 1), base::InputError);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, PairLimits, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mnemo::models
