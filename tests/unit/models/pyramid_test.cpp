// PVT, PVTv2 and Swin as whole networks: compared with their equations written out densely, at any size; presets
// compared with published figures.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "core/backbone.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models::pyramid_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

constexpr const char* kPvt = R"(
[backbone]
type = "pvt"
image_size = [16, 24]
patch_size = 2
dims = [4, 6]
depths = [1, 2]
num_heads = [1, 2]
mlp_ratios = [2, 3]
sr_ratios = [2, 1]
[head]
type = "classification"
num_classes = 5
)";

constexpr const char* kPvtV2 = R"(
[backbone]
type = "pvt_v2"
image_size = [32, 48]
dims = [4, 6]
depths = [1, 2]
num_heads = [1, 2]
mlp_ratios = [2, 3]
sr_ratios = [2, 1]
[head]
type = "classification"
num_classes = 5
pool = "mean"
)";

constexpr const char* kSwin = R"(
[backbone]
type = "swin"
image_size = [12, 20]
patch_size = 2
dim = 4
depths = [2, 2, 1]
num_heads = [1, 2, 2]
window_size = [3, 4]
mlp_ratio = 2
[head]
type = "classification"
num_classes = 5
pool = "mean"
)";

ModelOptions options(const char* toml, const std::vector<std::string>& assignments = {}) {
  base::Node node = base::parse_toml(toml, "recipe.toml");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return read_model_options(node);
}

std::unique_ptr<ImageModel> vision(const ModelOptions& of) {
  auto model = std::make_unique<ImageModel>(of, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.4);
  return model;
}

core::StepResult step(const ImageModel& model, const at::Tensor& pixels, core::Mode mode = core::Mode::evaluate) {
  core::Segment segment;
  segment.pixels = pixels;
  segment.mode = mode;
  return model.forward(segment, model.initial_state(pixels.size(0)));
}

/// Parameters by name, and the equations shared by all three.
struct Twin {
  explicit Twin(const ImageModel& of) : model(of) {}
  at::Tensor p(const std::string& name) const { return model.parameters().find("backbone." + name); }
  at::Tensor map(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, p(name + ".weight"), p(name + ".bias"));
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x, double eps) const {
    const at::Tensor mean = x.mean(-1, true), variance = (x - mean).square().mean(-1, true);
    return (x - mean) / (variance + eps).sqrt() * p(name + ".weight") + p(name + ".bias");
  }
  static at::Tensor gelu(const at::Tensor& x) { return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0))); }
  static at::Tensor rows(const at::Tensor& image) { return image.flatten(2).transpose(1, 2); }
  static at::Tensor image(const at::Tensor& rows, int64_t h, int64_t w) {
    return rows.transpose(1, 2).reshape({rows.size(0), rows.size(2), h, w});
  }
  /// One head after another; the last argument is added to the scores, [H,Q,K] or undefined.
  at::Tensor attention(const std::string& name, const at::Tensor& x, const at::Tensor& sources, int64_t num_heads,
                       const at::Tensor& bias = {}) const {
    const at::Tensor q = map(name + ".q", x), k = map(name + ".k", sources), v = map(name + ".v", sources);
    const int64_t width = q.size(2) / num_heads;
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < num_heads; ++h) {
      const auto cut = [&](const at::Tensor& t) { return t.narrow(2, h * width, width); };
      at::Tensor scores = at::matmul(cut(q), cut(k).transpose(1, 2)) / std::sqrt(static_cast<double>(width));
      if (bias.defined()) scores = scores + bias[h];
      heads.push_back(at::matmul(at::softmax(scores, -1), cut(v)));
    }
    return map(name + ".o", at::cat(heads, 2));
  }
  const ImageModel& model;
};

at::Tensor pvt_twin(const ImageModel& model, const at::Tensor& pixels) {
  const auto& o = std::get<backbones::PvtOptions>(model.options().backbone.vision());
  const Twin t(model);
  at::Tensor image = pixels, x;
  for (size_t s = 0; s < o.depths.size(); ++s) {
    const std::string at = fmt::format("stages.{}.", s);
    const int64_t patch = s == 0 ? o.patch_size : 2;
    image = at::conv2d(image, t.p(at + "patch_embedding.weight"), t.p(at + "patch_embedding.bias"), patch);
    const int64_t h = image.size(2), w = image.size(3), own_h = o.image_size[0] / o.patch_size >> s,
                  own_w = o.image_size[1] / o.patch_size >> s;
    const bool last = s + 1 == o.depths.size();
    x = t.norm(at + "patch_norm", Twin::rows(image), 1e-5);
    at::Tensor table = t.p(at + "positions.weight"), cls_row;
    if (last) {
      cls_row = table.narrow(0, 0, 1);
      table = table.narrow(0, 1, own_h * own_w);
      x = at::cat({t.p("class_token").expand({x.size(0), 1, -1}), x}, 1);
    }
    table = Twin::rows(at::upsample_bilinear2d(Twin::image(table.unsqueeze(0), own_h, own_w), {h, w}, false))[0];
    x = x + (last ? at::cat({cls_row, table}) : table);
    for (int64_t n = 0; n < o.depths[s]; ++n) {
      const std::string layer = fmt::format("{}layers.{}.", at, n);
      const at::Tensor u = t.norm(layer + "norm1", x, 1e-6);
      at::Tensor sources = u;
      if (const int64_t sr = o.sr_ratios[s]; sr > 1) {
        sources = Twin::rows(
            at::conv2d(Twin::image(u, h, w), t.p(layer + "attn.sr.weight"), t.p(layer + "attn.sr.bias"), sr));
        sources = t.norm(layer + "attn.sr_norm", sources, 1e-5);
      }
      x = x + t.attention(layer + "attn", u, sources, o.num_heads[s]);
      x = x + t.map(layer + "ffn.1", Twin::gelu(t.map(layer + "ffn.0", t.norm(layer + "norm2", x, 1e-6))));
    }
    if (!last) image = Twin::image(x, h, w);
  }
  return t.norm("final_norm", x, 1e-6);
}

at::Tensor pvt_v2_twin(const ImageModel& model, const at::Tensor& pixels) {
  const auto& o = std::get<backbones::PvtV2Options>(model.options().backbone.vision());
  const Twin t(model);
  at::Tensor image = pixels, x;
  for (size_t s = 0; s < o.depths.size(); ++s) {
    const std::string at = fmt::format("stages.{}.", s);
    image = at::conv2d(image, t.p(at + "patch_embedding.weight"), t.p(at + "patch_embedding.bias"), s == 0 ? 4 : 2,
                       s == 0 ? 3 : 1);
    const int64_t h = image.size(2), w = image.size(3);
    x = t.norm(at + "patch_norm", Twin::rows(image), 1e-5);
    for (int64_t n = 0; n < o.depths[s]; ++n) {
      const std::string layer = fmt::format("{}layers.{}.", at, n);
      const at::Tensor u = t.norm(layer + "norm1", x, 1e-6);
      at::Tensor sources = u;
      const int64_t sr = o.linear ? 1 : o.sr_ratios[s];
      if (o.linear || sr > 1) {
        at::Tensor from = Twin::image(u, h, w);
        if (o.linear) from = at::adaptive_avg_pool2d(from, {7, 7});
        sources = t.norm(layer + "attn.sr_norm",
                         Twin::rows(at::conv2d(from, t.p(layer + "attn.sr.weight"), t.p(layer + "attn.sr.bias"), sr)),
                         1e-5);
        if (o.linear) sources = Twin::gelu(sources);
      }
      x = x + t.attention(layer + "attn", u, sources, o.num_heads[s]);
      at::Tensor hidden = t.map(layer + "ffn.0", t.norm(layer + "norm2", x, 1e-6));
      if (o.linear) hidden = at::relu(hidden);
      hidden = at::conv2d(Twin::image(hidden, h, w), t.p(layer + "ffn.dwconv.weight"), t.p(layer + "ffn.dwconv.bias"),
                          1, 1, 1, hidden.size(2));
      x = x + t.map(layer + "ffn.1", Twin::gelu(Twin::rows(hidden)));
    }
    x = t.norm(at + "norm", x, 1e-6);
    image = Twin::image(x, h, w);
  }
  return x;
}

/// The bias between two positions of a padded image of size h x w: that of the table, -100 between regions, -inf
/// between windows.
struct WindowRule {
  int64_t window, shift, table, padded;
  int64_t region(int64_t at) const { return shift == 0 || at < padded - window ? 0 : at < padded - shift ? 1 : 2; }
};

at::Tensor swin_twin(const ImageModel& model, const at::Tensor& pixels) {
  const auto& o = std::get<backbones::SwinOptions>(model.options().backbone.vision());
  const Twin t(model);
  const at::Tensor patches = at::conv2d(pixels, t.p("patch_embedding.weight"), t.p("patch_embedding.bias"),
                                        o.patch_size);
  int64_t h = patches.size(2), w = patches.size(3), own_h = o.image_size[0] / o.patch_size,
          own_w = o.image_size[1] / o.patch_size;
  at::Tensor x = t.norm("patch_norm", Twin::rows(patches), 1e-5);
  for (size_t s = 0; s < o.depths.size(); ++s) {
    const std::string at = fmt::format("stages.{}.", s);
    if (s > 0) {
      const at::Tensor image = at::constant_pad_nd(x.view({x.size(0), h, w, x.size(2)}), {0, 0, 0, w % 2, 0, h % 2});
      const auto part = [&](int64_t row, int64_t column) {
        return image.slice(1, row, std::nullopt, 2).slice(2, column, std::nullopt, 2);
      };
      const at::Tensor four = at::cat({part(0, 0), part(1, 0), part(0, 1), part(1, 1)}, 3);
      h = (h + 1) / 2, w = (w + 1) / 2, own_h = (own_h + 1) / 2, own_w = (own_w + 1) / 2;
      x = at::linear(t.norm(at + "merging.norm", four, 1e-5), t.p(at + "merging.reduction.weight")).flatten(1, 2);
    }
    for (int64_t n = 0; n < o.depths[s]; ++n) {
      const std::string layer = fmt::format("{}layers.{}.", at, n);
      const auto rule = [&](int64_t size, int64_t own, int64_t wanted) {
        const int64_t table = std::min(wanted, own), window = std::min(table, size);
        return WindowRule{window, n % 2 == 1 && size > window ? window / 2 : 0, table,
                          (size + window - 1) / window * window};
      };
      const WindowRule down = rule(h, own_h, o.window_size[0]), right = rule(w, own_w, o.window_size[1]);
      const int64_t places = down.padded * right.padded, heads = o.num_heads[s];
      const at::Tensor u = t.norm(layer + "norm1", x, 1e-5), table = t.p(layer + "attn.relative_position_bias_table");
      at::Tensor rolled = at::zeros({x.size(0), places, x.size(2)}, at::kDouble),
                 bias = at::zeros({heads, places, places}, at::kDouble);
      std::vector<int64_t> source(static_cast<size_t>(places), -1);
      for (int64_t i = 0; i < places; ++i) {
        const int64_t row = i / right.padded, column = i % right.padded;
        if (row < h && column < w)
          source[static_cast<size_t>(i)] = (row + down.shift) % h * w + (column + right.shift) % w;
        if (source[static_cast<size_t>(i)] >= 0) rolled.select(1, i).copy_(u.select(1, source[static_cast<size_t>(i)]));
        for (int64_t j = 0; j < places; ++j) {
          const int64_t other_row = j / right.padded, other_column = j % right.padded;
          at::Tensor here = bias.select(1, i).select(1, j);
          if (row / down.window != other_row / down.window || column / right.window != other_column / right.window) {
            here.fill_(-std::numeric_limits<double>::infinity());
            continue;
          }
          here.copy_(table[(row - other_row + down.table - 1) * (2 * right.table - 1) + column - other_column +
                           right.table - 1]);
          if (down.region(row) != down.region(other_row) || right.region(column) != right.region(other_column))
            here.sub_(100.0);
        }
      }
      const at::Tensor y = t.attention(layer + "attn", rolled, rolled, heads, bias);
      at::Tensor back = at::zeros_like(x);
      for (int64_t i = 0; i < places; ++i) {
        if (source[static_cast<size_t>(i)] >= 0) back.select(1, source[static_cast<size_t>(i)]).copy_(y.select(1, i));
      }
      x = x + back;
      x = x + t.map(layer + "ffn.1", Twin::gelu(t.map(layer + "ffn.0", t.norm(layer + "norm2", x, 1e-5))));
    }
  }
  return t.norm("final_norm", x, 1e-5);
}

TEST(Pvt, IsItsFormulaAtItsOwnSizeAndAtOthers) {
  const at::NoGradGuard no_grad;
  const auto model = vision(options(kPvt));
  for (const auto& [height, width] : {std::pair{16, 24}, {22, 17}, {8, 4}}) {
    const at::Tensor pixels = Numbers(7).normal({2, 3, height, width});
    EXPECT_LE(difference(step(*model, pixels).hidden, pvt_twin(*model, pixels).narrow(1, 0, 1)), 1e-12)
        << height << "x" << width;
  }
  const auto mean = vision(options(kPvt, {"head.pool=mean", "backbone.qkv_bias=false"}));
  const at::Tensor pixels = Numbers(7).normal({2, 3, 16, 24}), rows = pvt_twin(*mean, pixels);
  EXPECT_LE(difference(step(*mean, pixels).hidden, rows.narrow(1, 1, rows.size(1) - 1).mean(1, true)), 1e-12);
}

TEST(PvtV2, IsItsFormulaAtAnySize) {
  const at::NoGradGuard no_grad;
  for (const char* linear : {"backbone.linear=false", "backbone.linear=true"}) {
    const auto model = vision(options(kPvtV2, {linear}));
    for (const auto& [height, width] : {std::pair{32, 48}, {33, 21}, {9, 9}}) {
      const at::Tensor pixels = Numbers(7).normal({2, 3, height, width});
      EXPECT_LE(difference(step(*model, pixels).hidden, pvt_v2_twin(*model, pixels).mean(1, true)), 1e-12)
          << linear << " " << height << "x" << width;
    }
  }
}

TEST(Swin, IsItsFormulaAtAnySize) {
  const at::NoGradGuard no_grad;
  const auto model = vision(options(kSwin));
  for (const auto& [height, width] : {std::pair{12, 20}, {8, 12}, {26, 14}, {2, 2}}) {
    const at::Tensor pixels = Numbers(7).normal({2, 3, height, width});
    EXPECT_LE(difference(step(*model, pixels).hidden, swin_twin(*model, pixels).mean(1, true)), 1e-12)
        << height << "x" << width;
  }
}

TEST(Pyramids, RefuseImagesThatTheyCannotTake) {
  const auto refused = [](const char* toml, at::IntArrayRef shape, std::initializer_list<std::string> parts) {
    const auto model = vision(options(toml));
    expect_error<base::InputError>([&] { step(*model, at::zeros(shape, at::kDouble)); }, parts);
  };
  refused(kPvt, {1, 3, 2, 24}, {"[pvt]", "2 x 24", "grid of 1 x 12", "stage 0", "sr_ratio of 2"});
  refused(kPvt, {1, 1, 16, 24}, {"[pvt]", "expected pixels [B,3,H,W]", "[1, 1, 16, 24]"});
  refused(kPvtV2, {1, 3, 4, 24}, {"[pvt_v2]", "4 x 24", "grid of 1 x 6", "sr_ratio of 2"});
  refused(kPvtV2, {1, 3, 0, 24}, {"[pvt_v2]", "0 x 24"});
  refused(kSwin, {1, 3, 12, 21}, {"[swin]", "multiples of patch_size = 2", "12 x 21"});
  refused(kSwin, {1, 3, 0, 20}, {"[swin]", "0 x 20"});
}

TEST(Pyramids, RefuseOptionsThatDoNotFit) {
  const auto refused = [](const char* toml, const std::string& assignment, std::initializer_list<std::string> parts) {
    expect_error<base::InputError>([&] { ImageModel(options(toml, {assignment}), 0, at::kFloat); }, parts);
  };
  refused(kPvt, "backbone.dims=[4]", {"dims", "each of the 2 stages", "found 1"});
  refused(kPvt, "backbone.num_heads=[1,4]", {"num_heads", "divisor of dims[1] = 6"});
  refused(kPvt, "backbone.sr_ratios=[2,2]", {"class token", "end with 1"});
  refused(kPvt, "backbone.sr_ratios=[16,1]", {"image_size", "16 x 24", "sr_ratio of 16"});
  refused(kPvtV2, "backbone.mlp_ratios=[2]", {"mlp_ratios", "each of the 2 stages"});
  refused(kPvtV2, "head.pool=cls", {"class token", "pvt_v2", "\"mean\""});
  refused(kSwin, "backbone.window_size=[3]", {"window_size", "[height, width]"});
  refused(kSwin, "backbone.num_heads=[1,3,2]", {"num_heads", "stage 1's width 8"});
  refused(kSwin, "backbone.image_size=[12,21]", {"image_size", "multiples of patch_size = 2"});
  refused(kSwin, "backbone.patch=2", {"backbone.patch", "patch_size"});
}

TEST(Pyramids, ImagesOfABatchDoNotMeet) {
  for (const char* toml : {kPvt, kPvtV2, kSwin}) {
    const auto model = vision(options(toml));
    const std::vector<int64_t> size = model->options().backbone.image_size();
    const at::Tensor pixels = Numbers(5).normal({4, 3, size[0], size[1]}), all = step(*model, pixels).hidden;
    const at::Tensor order = at::tensor({2, 0, 3, 1}, at::kLong);
    EXPECT_LE(difference(step(*model, pixels.index_select(0, order)).hidden, all.index_select(0, order)), 1e-13);
    EXPECT_LE(difference(step(*model, pixels.narrow(0, 1, 1)).hidden, all.narrow(0, 1, 1)), 1e-13);
  }
}

// A level is what its stage hands on, normalised where the backbone has a norm for it; the last one is the output.
TEST(Pyramids, GiveTheRowsOfEachStageWhenAsked) {
  struct Case {
    const char* toml;
    int64_t class_tokens;
    std::vector<std::string> last_rows;  // of each stage
  };
  for (const auto& [toml, class_tokens, last_rows] :
       {Case{kPvt, 1, {"stages.0.layers.0", "final_norm"}}, Case{kPvtV2, 0, {"stages.0.norm", "stages.1.norm"}},
        Case{kSwin, 0, {"stages.0.layers.1", "stages.1.layers.1", "final_norm"}}}) {
    const auto model = vision(options(toml));
    const std::vector<int64_t> size = model->options().backbone.image_size();
    std::map<std::string, at::Tensor> seen;
    core::BackboneInput input;
    input.pixels = Numbers(5).normal({2, 3, size[0] + 4, size[1] + 8});
    const core::Backbone& backbone = model->backbone();
    const core::BackboneResult plain = backbone.forward(input, backbone.initial_state(2));
    EXPECT_TRUE(plain.levels.empty());
    input.levels = true;
    input.hidden = [&](std::string_view name, const at::Tensor& rows) { seen[std::string(name)] = rows; };
    const core::BackboneResult result = backbone.forward(input, backbone.initial_state(2));
    EXPECT_TRUE(at::equal(result.hidden, plain.hidden));
    ASSERT_EQ(result.levels.size(), last_rows.size());
    for (size_t s = 0; s < last_rows.size(); ++s) {
      const at::Tensor& rows = result.levels[s].rows;
      const core::Grid& grid = result.levels[s].grid;
      const at::Tensor& of_stage = seen.at(last_rows[s]);
      const int64_t before = s + 1 == last_rows.size() ? class_tokens : 0;
      ASSERT_EQ(of_stage.size(1), before + grid.size()) << last_rows[s];
      EXPECT_TRUE(at::equal(rows, of_stage.narrow(1, before, grid.size()))) << last_rows[s];
    }
    EXPECT_TRUE(at::equal(result.levels.back().rows,
                          plain.hidden.narrow(1, class_tokens, plain.hidden.size(1) - class_tokens)));
    EXPECT_EQ(result.levels.back().grid.height, plain.grid.height);
    EXPECT_EQ(result.levels.back().grid.width, plain.grid.width);
  }
}

TEST(Pyramids, DropWholeBranchesInTrainingAlone) {
  for (const char* toml : {kPvt, kPvtV2, kSwin}) {
    const auto plain = vision(options(toml)), dropping = vision(options(toml, {"backbone.drop_path=0.99"}));
    const std::vector<int64_t> size = plain->options().backbone.image_size();
    const at::Tensor pixels = Numbers(5).normal({2, 3, size[0], size[1]});
    EXPECT_TRUE(test::same_bits(step(*dropping, pixels).hidden, step(*plain, pixels).hidden));
    EXPECT_TRUE(test::same_bits(step(*plain, pixels, core::Mode::train).hidden, step(*plain, pixels).hidden));
    EXPECT_GT(difference(step(*dropping, pixels, core::Mode::train).hidden, step(*plain, pixels).hidden), 1e-3);
  }
}

/// Hidden states by name.
std::map<std::string, at::Tensor> rows_of(const ImageModel& model, const core::Segment& segment) {
  std::map<std::string, at::Tensor> rows;
  model.forward(segment, model.initial_state(1), {},
                [&](std::string_view name, const at::Tensor& tensor) { rows[std::string(name)] = tensor; });
  return rows;
}

TEST(Pyramids, TheLayersOfOneStageAreALayerStack) {
  const auto check = [](const char* toml, const std::vector<std::string>& first_stage, const std::string& last_layer,
                        const std::string& expected_rows) {
    const auto whole = vision(options(toml));
    ModelOptions of_stack = options(toml, first_stage);
    of_stack.kind = ModelOptions::Kind::layer_stack;
    const ImageModel stack(of_stack, 0, at::kDouble);
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : stack.parameters().named())
      at::Tensor(tensor).copy_(whole->parameters().find(name));
    const std::vector<int64_t> size = whole->options().backbone.image_size();
    core::Segment images, rows;
    images.pixels = Numbers(5).normal({2, 3, size[0], size[1]});
    const auto expected = rows_of(*whole, images);
    rows.rows = expected.at("embed");
    EXPECT_LE(difference(stack.forward(rows, stack.initial_state(2)).hidden, expected.at(last_layer)), 1e-13);
    rows.rows = rows.rows.narrow(1, 0, 3);
    expect_error<base::InputError>([&] { stack.forward(rows, stack.initial_state(2)); },
                                   {"expected rows", expected_rows, "[2, 3, 4]"});
    of_stack = whole->options();
    of_stack.kind = ModelOptions::Kind::layer_stack;
    expect_error<base::InputError>([&] { ImageModel(of_stack, 0, at::kDouble); }, {"layer_stack", "one stage"});
  };
  check(kPvt,
        {"backbone.depths=[1]", "backbone.num_heads=[1]", "backbone.dims=[4]", "backbone.mlp_ratios=[2]",
         "backbone.sr_ratios=[2]"},
        "stages.0.layers.0", "[B,96,4]");
  check(kSwin, {"backbone.depths=[2]", "backbone.num_heads=[1]"}, "stages.0.layers.1", "[B,60,4]");
  ModelOptions none = options(kPvtV2);
  none.kind = ModelOptions::Kind::layer_stack;
  expect_error<base::InputError>([&] { ImageModel(none, 0, at::kDouble); },
                                 {"pvt_v2", "does not support a layer_stack"});
}

}  // namespace
}  // namespace mnemo::models::pyramid_test
