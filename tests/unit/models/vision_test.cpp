#include "models/image_model.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "backbones/vit.h"
#include "base/error.h"
#include "core/backbone.h"
#include "core/task_tokens.h"
#include "inspect/cost.h"
#include "models/presets.h"
#include "models/text_model.h"
#include "ops/image/grid.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

constexpr const char* kSmall = R"(
[backbone]
type = "vit"
image_size = [8, 12]
patch_size = 4
dim = 8
num_layers = 2
num_heads = 2
mlp_ratio = 2
[head]
type = "classification"
num_classes = 5
)";

ModelOptions options(const std::vector<std::string>& assignments = {}, const char* toml = kSmall) {
  base::Node node = base::parse_toml(toml, "recipe.toml");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return read_model_options(node);
}

std::unique_ptr<ImageModel> vision(const ModelOptions& of, at::ScalarType dtype = at::kDouble) {
  auto model = std::make_unique<ImageModel>(of, 1, dtype);
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.3);
  return model;
}

core::Segment images(const at::Tensor& pixels, core::Mode mode = core::Mode::evaluate) {
  core::Segment segment;
  segment.pixels = pixels;
  segment.mode = mode;
  return segment;
}

at::Tensor hidden(const ImageModel& model, const at::Tensor& pixels) {
  return model.forward(images(pixels), model.initial_state(pixels.size(0))).hidden;
}

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
  return (x - mean) / (variance + 1e-6).sqrt() * weight + bias;
}

// The whole network written out from its equations, including the convolution and loops over heads.
TEST(Vit, IsItsFormula) {
  for (const auto& [mean, class_token] : {std::pair{false, true}, {true, false}, {true, true}}) {
    const auto model = vision(options({mean ? "head.pool=mean" : "head.pool=cls", "backbone.layer_scale=0.5",
                                       class_token ? "backbone.cls_tokens=1" : "backbone.cls_tokens=0"}));
    const auto p = [&](const std::string& name) { return model->parameters().find(name); };
    const at::Tensor pixels = Numbers(7).normal({3, 3, 8, 12});
    at::Tensor h = at::conv2d(pixels, p("backbone.patch_embedding.weight"), p("backbone.patch_embedding.bias"), 4)
                       .flatten(2)
                       .transpose(1, 2);
    if (class_token) h = at::cat({p("backbone.class_token").expand({3, 1, 8}), h}, 1);
    h = h + p("backbone.positions.weight");
    for (int layer = 0; layer < 2; ++layer) {
      const std::string at = fmt::format("backbone.layers.{}.", layer);
      const auto map = [&](const at::Tensor& x, const std::string& name) {
        return at::matmul(x, p(at + name + ".weight").t()) + p(at + name + ".bias");
      };
      const at::Tensor u = norm(h, p(at + "norm1.weight"), p(at + "norm1.bias"));
      const at::Tensor q = map(u, "attn.q"), k = map(u, "attn.k"), v = map(u, "attn.v");
      std::vector<at::Tensor> heads;
      for (int64_t head = 0; head < 2; ++head) {
        const auto cut = [&](const at::Tensor& x) { return x.narrow(2, head * 4, 4); };
        heads.push_back(at::matmul(at::softmax(at::matmul(cut(q), cut(k).transpose(1, 2)) / 2.0, -1), cut(v)));
      }
      h = h + p(at + "scale1") * map(at::cat(heads, 2), "attn.o");
      const at::Tensor inner = map(norm(h, p(at + "norm2.weight"), p(at + "norm2.bias")), "ffn.0");
      h = h + p(at + "scale2") * map(inner * 0.5 * (1 + at::erf(inner / std::sqrt(2.0))), "ffn.1");
    }
    h = norm(h, p("backbone.final_norm.weight"), p("backbone.final_norm.bias"));
    const at::Tensor row = mean ? h.narrow(1, class_token ? 1 : 0, 6).mean(1, true) : h.narrow(1, 0, 1);
    const core::StepResult step = model->forward(images(pixels), model->initial_state(3));
    EXPECT_LE(difference(step.hidden, row), 1e-12);
    EXPECT_LE(difference(model->logits(step.hidden),
                         at::matmul(row, p("head.classifier.weight").t()) + p("head.classifier.bias")),
              1e-12);
    const at::Tensor targets = Numbers(8).tokens({3, 1}, 5);
    const at::Tensor log_p = at::log_softmax(model->logits(step.hidden), -1);
    EXPECT_LE(difference(model->nll(step.hidden, targets), -log_p.gather(2, targets.unsqueeze(-1)).squeeze(-1)), 1e-12);
  }
}

TEST(Vit, TakesAnySizeThatPatchesFill) {
  const auto model = vision(options());
  const auto& vit = dynamic_cast<const backbones::Vit&>(model->backbone());
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{4, 4}, {16, 8}, {20, 36}}) {
    EXPECT_EQ(hidden(*model, Numbers(2).normal({2, 3, height, width})).sizes(), (std::vector<int64_t>{2, 1, 8}));
    // The class row does not change; the others are those of the resampled grid.
    const at::Tensor table = vit.positions({height / 4, width / 4}),
                     own = model->parameters().find("backbone.positions.weight");
    EXPECT_TRUE(test::same_bits(table[0], own[0]));
    EXPECT_LE(difference(table.narrow(0, 1, table.size(0) - 1),
                         ops::resample_grid(own.narrow(0, 1, 6), 2, 3, height / 4, width / 4,
                                            ops::GridResampling::bicubic_antialias)),
              1e-15);
  }
  expect_error<base::InputError>(
      [&] {
        hidden(*model, at::zeros({1, 3, 8, 14}, at::kDouble));
      },
      {"multiples of patch_size = 4", "8 x 14"});
  expect_error<base::InputError>(
      [&] {
        hidden(*model, at::zeros({1, 3, 0, 8}, at::kDouble));
      },
      {"multiples of patch_size = 4", "0 x 8"});
  expect_error<base::InputError>(
      [&] {
        hidden(*model, at::zeros({1, 1, 8, 12}, at::kDouble));
      },
      {"expected pixels [B,3,H,W]", "[1, 1, 8, 12]"});
}

TEST(Vit, ImagesOfABatchDoNotMeet) {
  const auto model = vision(options());
  const at::Tensor pixels = Numbers(5).normal({4, 3, 8, 12});
  const at::Tensor all = hidden(*model, pixels);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_LE(difference(hidden(*model, pixels.narrow(0, i, 1)), all.narrow(0, i, 1)), 1e-14);
  EXPECT_LE(difference(hidden(*model, pixels.flip(0)), all.flip(0)), 1e-14);
}

TEST(Vit, DropPathAndDropoutActInTrainingAlone) {
  const auto plain = vision(options()), dropping = vision(options({"backbone.drop_path=0.5", "backbone.dropout=0.1"}));
  const at::Tensor pixels = Numbers(5).normal({4, 3, 8, 12});
  EXPECT_TRUE(test::same_bits(hidden(*plain, pixels), hidden(*dropping, pixels)));
  at::manual_seed(1);
  const at::Tensor trained = dropping->forward(images(pixels, core::Mode::train), dropping->initial_state(4)).hidden;
  EXPECT_GT(difference(trained, hidden(*dropping, pixels)), 0.01);
  EXPECT_TRUE(test::same_bits(plain->forward(images(pixels, core::Mode::train), plain->initial_state(4)).hidden,
                              hidden(*plain, pixels)));
}

TEST(Vit, TellsOfItsRows) {
  const auto model = vision(options());
  std::vector<std::string> names;
  const at::Tensor pixels = Numbers(5).normal({1, 3, 8, 12});
  int64_t attentions = 0;
  model->forward(
      images(pixels), model->initial_state(1),
      [&](int64_t, const core::Attention&, const core::AttentionInput& input, const core::State&) {
        ++attentions;
        EXPECT_EQ(input.grid().height, 2);
        EXPECT_EQ(input.grid().width, 3);
        EXPECT_TRUE(input.table.open());
        EXPECT_EQ(input.table.row_length(core::SpanKind::class_token), 1);
      },
      [&](std::string_view name, const at::Tensor& rows) {
        names.emplace_back(name);
        EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{1, 7, 8}));
      });
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layers.0", "layers.1", "final_norm"}));
  EXPECT_EQ(attentions, 2);
}

TEST(Vit, HasOneLevelWithoutTheClassToken) {
  for (const int64_t class_tokens : {0, 1}) {
    const auto model = vision(options({"head.pool=mean", fmt::format("backbone.cls_tokens={}", class_tokens)}));
    core::BackboneInput input;
    input.pixels = Numbers(5).normal({2, 3, 16, 12});
    const core::BackboneResult plain = model->backbone().forward(input, model->backbone().initial_state(2));
    EXPECT_TRUE(plain.levels.empty());
    input.levels = true;
    const core::BackboneResult result = model->backbone().forward(input, model->backbone().initial_state(2));
    ASSERT_EQ(result.levels.size(), 1U);
    EXPECT_EQ(result.levels[0].grid.height, 4);
    EXPECT_EQ(result.levels[0].grid.width, 3);
    EXPECT_TRUE(at::equal(result.levels[0].rows, plain.hidden.narrow(1, class_tokens, 12)));
  }
}

TEST(Vit, OptionsAreReadAndWritten) {
  const ModelOptions read = options();
  const base::Node written = base::write_options(read);
  EXPECT_FALSE(written.contains("embedding"));
  EXPECT_FALSE(written.contains("segment_size"));
  EXPECT_FALSE(written.at("backbone").contains("ffn_dim"));
  EXPECT_EQ(written.at("backbone").at("patch_size").as_int(), 4);
  EXPECT_EQ(base::write_options(read_model_options(written)), written);
  EXPECT_EQ(count_parameters(read), ImageModel(read, 0, at::kFloat).parameters().count());
}

TEST(Vit, RefusesWhatMakesNoSense) {
  expect_error<base::InputError>([] { options({"backbone.num_heads=3"}); },
                                 {"backbone.num_heads", "divisor of dim = 8", "3"});
  expect_error<base::InputError>([] { options({"backbone.image_size=[8,13]"}); },
                                 {"backbone.image_size", "multiples of patch_size = 4", "8 x 13"});
  expect_error<base::InputError>([] { options({"backbone.image_size=[8]"}); },
                                 {"backbone.image_size", "[height, width]"});
  expect_error<base::InputError>([] { options({"backbone.ffn_dim=8"}); }, {"backbone.ffn_dim"});
  expect_error<base::InputError>([] { options({"embedding.vocab_size=8"}); }, {"embedding", "patches"});
  expect_error<base::InputError>([] { options({"segment_size=8"}); }, {"segment_size"});
  expect_error<base::InputError>([] { options({"head.type=language_model"}); }, {"head"});
  expect_error<base::InputError>([] { options({"memory=[{type=\"segment_cache\"}]"}); },
                                 {"memory", "segment_cache", "supports grc"});
  expect_error<base::InputError>([] { options({"memory=[{type=\"grc\",lifetime=\"sequence\"}]"}); },
                                 {"memory", "lifetime"});
  expect_error<base::InputError>([] { vision(options({"backbone.cls_tokens=0"})); },
                                 {"head.pool", "class token", "mean"});
  expect_error<base::InputError>([] { vision(options({"head.num_classes=1"})); }, {"num_classes"});
  const auto model = vision(options());
  core::Segment tokens;
  tokens.tokens = at::zeros({1, 4}, at::kLong);
  expect_error<base::InputError>([&] { model->forward(tokens, model->initial_state(1)); },
                                 {"vit", "pixels [B,C,H,W]", "found tokens"});
  tokens.pixels = at::zeros({1, 3, 8, 12}, at::kDouble);
  expect_error<base::InputError>([&] { model->forward(tokens, model->initial_state(1)); },
                                 {"vit", "pixels or rows alone", "found tokens with them"});
  core::Segment part = images(at::zeros({1, 3, 8, 12}, at::kDouble));
  part.part.ends = false;
  expect_error<base::InputError>([&] { model->forward(part, model->initial_state(1)); }, {"always whole"});
  expect_error<base::InputError>([&] { require_next_token_model(*model, "generate"); }, {"generate", "images"});
  expect_error<base::InputError>([&] { as<TextModel>(*model, "inspect"); }, {"inspect", "images"});
}

TEST(Vit, KeepsACacheAroundItsAttention) {
  const auto model = vision(options({"memory=[{type=\"grc\",cache_len=5}]"}));
  const at::Tensor pixels = Numbers(5).normal({4, 3, 8, 12});
  const core::StepResult step = model->forward(images(pixels, core::Mode::train), model->initial_state(4));
  const at::Tensor before = hidden(*model, pixels);
  model->commit(step.state);
  EXPECT_GT(difference(hidden(*model, pixels), before), 1e-6);
  EXPECT_EQ(model->scalars().size(), 2U);
  EXPECT_EQ(core::num_bytes(model->initial_state(3), core::Lifetime::sequence), 0);
}

/// Multiply-adds per image in units of 10^9. All layers cost the same, so models of one and two layers determine the
/// total.
double multiply_adds(ModelOptions options, const std::vector<int64_t>& image_size = {}) {
  auto& vit = std::get<backbones::VitOptions>(options.backbone.vision());
  const int64_t layers = vit.num_layers;
  const auto flops = [&](int64_t count) {
    vit.num_layers = count;
    return inspect::count_cost(ImageModel(options, 0, at::kFloat),
                               inspect::CostOptions{.batch = 1, .image_size = image_size})
        .total.flops;
  };
  const int64_t one = flops(1), two = flops(2);
  return static_cast<double>(one + (layers - 1) * (two - one)) / 2e9;
}

// The figures in torchvision's table (vit_b_16 …), and timm's for small, which also count norms.
TEST(VitPresets, CostWhatIsPublished) {
  const std::vector<std::pair<const char*, double>> published = {
      {"vit_small_patch16", 4.61}, {"vit_small_patch32", 1.15},   {"vit_base_patch16", 17.564},
      {"vit_base_patch32", 4.409}, {"vit_large_patch16", 61.555}, {"vit_large_patch32", 15.378}};
  for (const auto& [name, figure] : published) {
    const bool small = std::string_view(name).find("small") != std::string_view::npos;
    const ModelOptions of = read_model_options(base::Node::table({{"preset", name}}));
    EXPECT_NEAR(multiply_adds(of), figure, small ? 0.012 : 0.0005) << name;
  }
}

TEST(VitCost, IsThatOfItsFormula) {
  const auto model = vision(options());
  const inspect::ModelCost cost = inspect::count_cost(*model, inspect::CostOptions{.batch = 3, .image_size = {8, 16}});
  const int64_t rows = 9, batch = 3, dim = 8, hidden = 16, layers = 2;
  const auto part = [&](const std::string& name) {
    for (const inspect::PartCost& found : cost.parts) {
      if (found.part == name) return found;
    }
    ADD_FAILURE() << "no part " << name;
    return inspect::PartCost{};
  };
  EXPECT_EQ(part("embedding").flops, 2 * batch * 8 * dim * 48);
  EXPECT_EQ(part("attention").flops, 2 * batch * layers * (4 * rows * dim * dim + 2 * rows * rows * dim));
  EXPECT_EQ(part("feed_forward").flops, 2 * batch * layers * 2 * rows * dim * hidden);
  EXPECT_EQ(part("head").flops, 2 * batch * dim * 5);
  EXPECT_EQ(part("embedding").parameters, dim * 48 + dim + dim + 7 * dim);
  EXPECT_EQ(part("norms").parameters, 2 * dim * (2 * layers + 1));
  EXPECT_EQ(cost.total.parameters, model->parameters().count());
  EXPECT_EQ(cost.total.state_bytes, 0);
  expect_error<base::InputError>(
      [&] { inspect::count_cost(*model, inspect::CostOptions{.batch = 1, .image_size = {8}}); },
      {"image_size", "[height, width]"});
  expect_error<base::InputError>([&] { inspect::count_cost(*model, inspect::CostOptions{0}); }, {"batch", "0"});
  const auto cached = vision(options({"memory=[{type=\"grc\",cache_len=5}]"}));
  const inspect::ModelCost with = inspect::count_cost(*cached);
  EXPECT_EQ(with.added.size(), 1U);
  EXPECT_EQ(with.added[0].model_state_bytes, layers * 5 * 4 * 8);
  EXPECT_GT(with.added[0].flops, 0);
}

}  // namespace
}  // namespace mnemo::models
