// Reports of `inspect` for an input: choices, shares, pictures.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <png.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "inspect/attention_summary.h"
#include "inspect/cost_summary.h"
#include "inspect/draw/attention_picture.h"
#include "inspect/draw/canvas.h"
#include "inspect/draw/rasterise.h"
#include "models/text_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::inspect {
namespace {

using test::expect_error;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::unique_ptr<models::TextModel> small_model(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "segment_size = 4\n[embedding]\nvocab_size = 7\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = "
      "8\n",
      "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  return models::build_as<models::TextModel>(base::read_options<models::ModelOptions>(node), 1, at::kDouble);
}

struct Input {
  std::vector<data::Batch> segments;
  std::vector<std::vector<std::string>> words;
};

Input small_input(int64_t segments) {
  Input input;
  test::Numbers numbers(2);
  for (int64_t i = 0; i < segments; ++i) {
    data::Batch segment;
    segment.input.tokens = numbers.tokens({1, 4}, 7);
    input.segments.push_back(segment);
    input.words.push_back({"a", "b<", "c", std::to_string(i)});
  }
  return input;
}

AttentionSummary inspect(const models::TextModel& model, const AttentionChoice& choice = {}, int64_t segments = 3) {
  const Input input = small_input(segments);
  return look_at_input(model, input.segments, input.words, choice).shown();
}

TEST(ChosenNumbers, AreListsAndRanges) {
  EXPECT_EQ(chosen_numbers("2", 4, "x"), (std::vector<int64_t>{2}));
  EXPECT_EQ(chosen_numbers("3,0-1,1", 4, "x"), (std::vector<int64_t>{3, 0, 1}));
  for (const char* wrong : {"", "4", "0-4", "-1", "2-1", "a", "1,", "1;2", "0 1", "99999999999999999999"}) {
    expect_error<base::InputError>(
        [&] { chosen_numbers(wrong, 4, "inspect: --layers"); },
        {"inspect: --layers: expected numbers from 0 to 3", "found '" + std::string(wrong) + "'"});
  }
}

TEST(AttentionSummary, SharesAreSumsOfWeightsBySpan) {
  const auto model = small_model({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2",
                                  "memory[1].type=segment_cache", "memory[1].mem_len=3"});
  const AttentionSummary facts = inspect(*model);
  EXPECT_EQ(facts.segment, 3);
  EXPECT_EQ(facts.maps.size(), 4u);
  EXPECT_EQ(facts.shares.size(), 2u * 2u * 3u) << "each layer and head, from read, tokens and write";
  for (const HeadShare& share : facts.shares) {
    double sum = 0;
    for (const auto& [kind, value] : share.to) sum += value;
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
  // Keys: 3 cache, 2 read, 4 tokens, 2 write.
  const HeadMap& map = facts.maps[1];
  ASSERT_EQ(map.weights.sizes(), (at::IntArrayRef{8, 11}));
  const at::Tensor tokens = map.weights.narrow(0, 2, 4);
  for (const HeadShare& share : facts.shares) {
    if (share.layer != map.layer || share.head != map.head || share.from != "tokens") continue;
    const std::vector<std::pair<std::string, double>> expected = {
        {"cache", tokens.narrow(1, 0, 3).sum().item<double>() / 4},
        {"read", tokens.narrow(1, 3, 2).sum().item<double>() / 4},
        {"tokens", tokens.narrow(1, 5, 4).sum().item<double>() / 4},
        {"write", 0.0}};
    ASSERT_EQ(share.to.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(share.to[i].first, expected[i].first);
      EXPECT_NEAR(share.to[i].second, expected[i].second, 1e-12) << expected[i].first;
    }
  }
  const std::vector<std::string> queries = labels_of(facts, 0, core::MapAxis::queries, 8);
  EXPECT_EQ(queries, (std::vector<std::string>{"read 0", "read 1", "a", "b<", "c", "2", "write 0", "write 1"}));
  const std::string text = to_text(facts);
  EXPECT_TRUE(holds(text, "segment 3 of 3, 4 tokens")) << text;
  EXPECT_TRUE(holds(text, "to cache")) << text;
}

TEST(AttentionSummary, ARowOfTheClassIsNoToken) {
  const auto model = small_model({"backbone.type=encoder", "head.type=classification", "head.num_classes=2"});
  Input input;
  input.segments.emplace_back().input.tokens = at::zeros({1, 1}, at::kLong);
  input.words.push_back({"a"});
  const AttentionSummary facts = look_at_input(*model, input.segments, input.words, {}).shown();
  ASSERT_EQ(facts.shares.size(), 2u * 2u * 2u) << "each layer and head, from the class's row and tokens";
  for (size_t i = 0; i < facts.shares.size(); ++i) {
    EXPECT_EQ(facts.shares[i].from, i % 2 == 0 ? "class" : "tokens");
    ASSERT_EQ(facts.shares[i].to.size(), 2u);
    EXPECT_EQ(facts.shares[i].to[0].first, "class");
    EXPECT_EQ(facts.shares[i].to[1].first, "tokens");
  }
  EXPECT_EQ(labels_of(facts, 0, core::MapAxis::keys, 2), (std::vector<std::string>{"class 0", "a"}));
}

TEST(AttentionSummary, SharesOfWeightsThatAreNoSoftmaxAreOfTheirAbsoluteSum) {
  for (const std::vector<std::string>& assignments : std::vector<std::vector<std::string>>{
           {"backbone.attention.type=abc", "backbone.attention.num_slots=2", "backbone.attention.control.type=random"},
           {"backbone.type=encoder", "backbone.attention.type=linformer", "backbone.attention.max_len=8"}}) {
    const auto model = small_model(assignments);
    const at::NoGradGuard no_grad;
    test::Numbers numbers(4);  // large enough that signs and sums matter
    for (const auto& [name, tensor] : model->parameters().named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()));
    const AttentionSummary facts = inspect(*model);
    double farthest = 0;
    for (const HeadMap& map : facts.maps) {
      if (map.columns != core::MapAxis::keys) continue;
      const at::Tensor weights = map.weights.abs().sum(1),
                       past = map.past.defined() ? map.past.abs() : at::zeros_like(weights);
      farthest = std::max(farthest, test::largest(map.weights.sum(1) - 1.0));
      const auto share = std::find_if(facts.shares.begin(), facts.shares.end(), [&](const HeadShare& one) {
        return one.layer == map.layer && one.head == map.head;
      });
      ASSERT_NE(share, facts.shares.end());
      double sum = 0;
      for (const auto& [kind, value] : share->to) {
        EXPECT_GE(value, 0.0);
        sum += value;
        const at::Tensor of_kind = kind == "past" ? past : weights;
        EXPECT_NEAR(value, (of_kind / (weights + past)).mean().item<double>(), 1e-12) << kind;
      }
      EXPECT_NEAR(sum, 1.0, 1e-12);
    }
    EXPECT_GT(farthest, 0.1) << "the weights are shares already";
  }
}

TEST(AttentionSummary, CompressedRowsAreTheirOwnKindOfKeys) {
  const auto model = small_model({"memory[0].type=compressive", "memory[0].mem_len=4", "memory[0].compressed_len=3",
                                  "memory[0].compression_rate=2"});
  const AttentionSummary facts = inspect(*model);
  // 8 rows precede the third segment: the first 4 have become 2.
  const HeadMap& map = facts.maps[0];
  ASSERT_EQ(map.weights.sizes(), (at::IntArrayRef{4, 10}));
  const base::Node keys = to_node(facts).at("keys");
  ASSERT_EQ(keys.size(), 3u);
  const std::vector<std::pair<std::string, int64_t>> spans = {{"compressed", 2}, {"cache", 4}, {"tokens", 4}};
  ASSERT_EQ(facts.shares[0].to.size(), 3u);
  int64_t first = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    const auto& [kind, length] = spans[i];
    EXPECT_EQ(keys.items()[i].at("kind").as_string(), kind);
    EXPECT_EQ(keys.items()[i].at("length").as_int(), length);
    EXPECT_EQ(facts.shares[0].to[i].first, kind);
    EXPECT_NEAR(facts.shares[0].to[i].second, map.weights.narrow(1, first, length).sum(1).mean().item<double>(), 1e-12);
    first += length;
  }
  EXPECT_EQ(labels_of(facts, 0, core::MapAxis::keys, 10),
            (std::vector<std::string>{"compressed 0", "compressed 1", "cache 0", "cache 1", "cache 2", "cache 3", "a",
                                      "b<", "c", "2"}));
  EXPECT_TRUE(holds(svg_of({&facts, nullptr}), "compressed"));
  // Before anything is compressed, there are none.
  EXPECT_EQ(to_node(inspect(*model, {{}, {}, 2})).at("keys").items()[0].at("kind").as_string(), "cache");
}

TEST(AttentionSummary, PaddedQueriesDoNotCount) {
  const auto model = small_model({"backbone.attention.type=softmax"});
  Input input = small_input(1);
  const AttentionSummary whole = look_at_input(*model, input.segments, input.words, {}).shown();
  input.segments[0].input.valid = at::tensor({1, 1, 1, 0}, at::kLong).view({1, 4}).to(at::kBool);
  const AttentionSummary padded = look_at_input(*model, input.segments, input.words, {}).shown();
  ASSERT_EQ(padded.shares.size(), 4u);
  for (const HeadShare& share : padded.shares) EXPECT_NEAR(share.to.at(0).second, 1.0, 1e-12);
  EXPECT_EQ(test::difference(padded.maps[0].weights.narrow(0, 0, 3), whole.maps[0].weights.narrow(0, 0, 3)), 0.0);
}

TEST(AttentionSummary, TheLastOfTheFullestSegmentsIsShown) {
  const auto model = small_model({});
  Input input = small_input(3);
  const auto shown = [&] { return look_at_input(*model, input.segments, input.words, {}).shown().segment; };
  EXPECT_EQ(shown(), 3);
  input.segments[2].input.tokens = input.segments[2].input.tokens.narrow(1, 0, 1);
  input.words[2].resize(1);
  EXPECT_EQ(shown(), 2);
  input.segments[1].input.valid = at::tensor({1, 1, 1, 0}, at::kLong).view({1, 4}).to(at::kBool);
  EXPECT_EQ(shown(), 1);
}

TEST(AttentionSummary, ASegmentWithFilledMemoryIsShown) {
  Input input = small_input(3);
  const auto shorten = [&](size_t i, int64_t tokens) {
    input.segments[i].input.tokens = input.segments[i].input.tokens.narrow(1, 0, tokens);
    input.words[i].resize(static_cast<size_t>(tokens));
  };
  shorten(1, 2);
  shorten(2, 1);
  const auto shown = [&](const std::vector<std::string>& assignments) {
    return look_at_input(*small_model(assignments), input.segments, input.words, {}).shown().segment;
  };
  const std::vector<std::vector<std::string>> memories = {
      {"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2"},
      {"memory[0].type=segment_cache", "memory[0].mem_len=8"},
      {"backbone.attention.type=linear"}};
  EXPECT_EQ(shown({}), 1) << "nothing to fill";
  for (const std::vector<std::string>& memory : memories) EXPECT_EQ(shown(memory), 2) << memory[0];
  input.segments[1].reset = at::ones({1}, at::kBool);
  for (const std::vector<std::string>& memory : memories) EXPECT_EQ(shown(memory), 3) << memory[0];
  input.segments[2].reset = input.segments[1].reset;
  for (const std::vector<std::string>& memory : memories) EXPECT_EQ(shown(memory), 1) << "each stands alone";
}

TEST(AttentionSummary, SegmentsAroundTheChosenOneAreKept) {
  const auto model = small_model({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=1"});
  const Input input = small_input(5);
  constexpr int64_t kEach = 2 * 2 * 6 * 6;
  const auto kept = [&](int64_t chosen, int64_t max_weights) {
    const InputAttention found = look_at_input(*model, input.segments, input.words, {{}, {}, chosen}, max_weights);
    EXPECT_EQ(found.shown().segment, chosen);
    EXPECT_EQ(found.shown().words.back(), std::to_string(chosen - 1));
    std::vector<int64_t> numbers;
    for (const AttentionSummary& facts : found.segments) numbers.push_back(facts.segment);
    const at::Tensor alone = inspect(*model, {{}, {}, chosen}, 5).maps.back().weights;
    EXPECT_EQ(test::difference(found.shown().maps.back().weights, alone), 0.0);
    return numbers;
  };
  EXPECT_EQ(kept(3, 0), (std::vector<int64_t>{3}));
  EXPECT_EQ(kept(3, 2 * kEach), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(kept(3, 4 * kEach), (std::vector<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(kept(1, 2 * kEach), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(kept(5, 100 * kEach), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(AttentionSummary, ChoicesAreKeptOrRefused) {
  const auto model = small_model({});
  const AttentionSummary facts = inspect(*model, {"1", "0", 2});
  ASSERT_EQ(facts.maps.size(), 1u);
  EXPECT_EQ(facts.maps[0].layer, 1);
  EXPECT_EQ(facts.maps[0].head, 0);
  EXPECT_EQ(facts.words.back(), "1");
  expect_error<base::InputError>(
      [&] {
        inspect(*model, {"2", {}, {}});
      },
      {"inspect: --layers: expected numbers from 0 to 1", "found '2'"});
  expect_error<base::InputError>(
      [&] {
        inspect(*model, {{}, "0-2", {}});
      },
      {"inspect: --heads: expected numbers from 0 to 1", "found '0-2'"});
  expect_error<base::InputError>(
      [&] {
        inspect(*model, {{}, {}, 4});
      },
      {"inspect: --segment: the input has 3 segments; expected 1 to 3, found 4"});
}

TEST(AttentionSummary, GatesAndCacheOfGrc) {
  const auto model = small_model(
      {"memory[0].type=grc", "memory[0].cache_len=3", "memory[0].lifetime=sequence", "memory[0].gate_bias=true"});
  const at::NoGradGuard no_grad;
  at::Tensor bias = model->parameters().find("backbone.layers.0.attn.grc.update_gate.bias");
  bias.fill_(-30.0);
  const AttentionSummary facts = inspect(*model);
  EXPECT_EQ(facts.maps.size(), 8u) << "attention and grc_cache of two layers and heads";
  ASSERT_EQ(facts.gates.size(), 4u);
  EXPECT_EQ(facts.gates[1].gate, "update");
  EXPECT_LT(facts.gates[1].mean, 1e-12);
  EXPECT_LT(facts.gates[1].quantiles.back(), 1e-12);
  EXPECT_NEAR(facts.gates[0].mean, 0.5, 0.2);
  for (const GateSpread& gate : facts.gates) EXPECT_TRUE(std::is_sorted(gate.quantiles.begin(), gate.quantiles.end()));
  EXPECT_TRUE(holds(to_text(facts), "Gates of the GRC update"));
  EXPECT_EQ(to_node(facts).at("gates").size(), 4u);
}

TEST(AttentionSummary, JsonHoldsEveryWeight) {
  const auto model = small_model({});
  const base::Node node = to_node(inspect(*model, {"0", "1", {}}));
  const base::Node& map = node.at("maps").items().at(0);
  EXPECT_EQ(map.at("rows").as_string(), "queries");
  EXPECT_EQ(map.at("columns").as_string(), "keys");
  ASSERT_EQ(map.at("weights").size(), 4u);
  double sum = 0;
  for (const base::Node& weight : map.at("weights").items().at(3).items()) sum += weight.as_double();
  EXPECT_NEAR(sum, 1.0, 1e-5);
  EXPECT_EQ(node.at("tokens").items().at(1).as_string(), "b<");
}

/// The dots of a PNG, as read by libpng.
Raster read_png(const std::string& bytes) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0);
  image.format = PNG_FORMAT_RGB;
  Raster raster{image.width, image.height, {}};
  raster.dots.resize(static_cast<size_t>(raster.width * raster.height));
  EXPECT_NE(png_image_finish_read(&image, nullptr, raster.dots.data(), 0, nullptr), 0);
  return raster;
}

bool is(const Raster& raster, int64_t x, int64_t y, Colour colour) {
  const Colour& dot = raster.at(x, y);
  return dot.red == colour.red && dot.green == colour.green && dot.blue == colour.blue;
}

TEST(Canvas, PngIsWhatWasDrawn) {
  Canvas canvas;
  canvas.rectangle(2, 3, 4, 5, {10, 20, 30});
  canvas.line({{10, 1}, {18, 1}}, {200, 0, 0}, 1);
  canvas.cells(12, 4, 3, {2, 1, {{1, 2, 3}, {7, 8, 9}}});
  const Raster raster = read_png(png_of(canvas.svg(20, 10)));
  ASSERT_EQ(raster.width, 40);
  ASSERT_EQ(raster.height, 20);
  EXPECT_TRUE(is(raster, 4, 6, {10, 20, 30}) && is(raster, 11, 15, {10, 20, 30}));
  EXPECT_TRUE(is(raster, 3, 6, {255, 255, 255}) && is(raster, 12, 15, {255, 255, 255}) &&
              is(raster, 4, 16, {255, 255, 255}));
  EXPECT_TRUE(is(raster, 28, 2, {200, 0, 0}));
  EXPECT_TRUE(is(raster, 24, 8, {1, 2, 3}) && is(raster, 29, 13, {1, 2, 3}) && is(raster, 30, 8, {7, 8, 9}) &&
              is(raster, 35, 13, {7, 8, 9}))
      << "cells have sharp edges";
  canvas.rectangle(-50, -50, 500, 500, {1, 2, 3});  // what is outside is clipped
  EXPECT_TRUE(is(read_png(png_of(canvas.svg(20, 10))), 39, 19, {1, 2, 3}));
}

TEST(Canvas, PngHasLetters) {
  const auto dark = [](const char* text) {
    Canvas canvas;
    canvas.text(1, 10, text, 10, Anchor::left, {0, 0, 0});
    int64_t count = 0;
    for (const Colour& dot : read_png(png_of(canvas.svg(60, 12))).dots) count += dot.red < 128 ? 1 : 0;
    return count;
  };
  EXPECT_EQ(dark(""), 0);
  EXPECT_GT(dark("l"), 5);
  EXPECT_GT(dark("layer"), 3 * dark("l"));
  EXPECT_GT(dark("\xc3\xa4 \xcf\x83"), 3 * dark("l")) << "letters beyond ASCII";
}

TEST(Canvas, PngOfALargePictureHasFewerDots) {
  Canvas canvas;
  canvas.rectangle(0, 20'000, 10, 20'000, {10, 20, 30});
  const Raster raster = read_png(png_of(canvas.svg(10, 40'000)));
  ASSERT_EQ(raster.height, 30'000);
  EXPECT_TRUE(is(raster, 3, 14'990, {255, 255, 255}) && is(raster, 3, 15'010, {10, 20, 30}));
}

TEST(AttentionPicture, ShowsMapsAndTheirBorders) {
  const auto model = small_model({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=2"});
  const AttentionSummary facts = inspect(*model);
  const std::string svg = svg_of({&facts, nullptr});
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
  for (const char* part : {"layer 1 head 1", "data:image/png;base64,", "write 1", "b&lt;", "#d13c2b"})
    EXPECT_TRUE(holds(svg, part)) << part;
  EXPECT_FALSE(holds(svg, "b<"));
  const Raster raster = read_png(png_of(svg_of({&facts, nullptr})));
  int64_t border = 0;
  for (const Colour& dot : raster.dots) border += dot.red == 0xd1 && dot.green == 0x3c && dot.blue == 0x2b ? 1 : 0;
  // Four maps with two lines in each direction, of eight cells of 12 pixels.
  EXPECT_GT(border, 4 * 4 * 8 * 12 * 2);
  // A key that is masked is white, one that is attended to is not: the first map's first row of tokens and the write
  // keys.
  const AttentionSummary larger = inspect(*small_model({"segment_size=700"}), {}, 1);
  EXPECT_FALSE(png_of(svg_of({&larger, nullptr})).empty());
}

TEST(AttentionPicture, HasWordsAtBothEdgesAndAScale) {
  const auto count = [](const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  const auto model = small_model({});
  const AttentionSummary facts = inspect(*model);
  const std::string svg = svg_of({&facts, nullptr});
  EXPECT_EQ(count(svg, ">b&lt;</text>"), 2 * facts.maps.size()) << "each word beside its row and below its column";
  EXPECT_EQ(count(svg, "transform=\"rotate(-90"), 4 * facts.maps.size()) << "the words below";
  EXPECT_EQ(count(svg, "class=\"weights\""), 2 * facts.maps.size()) << "a map and its scale";
  EXPECT_EQ(count(svg, "@media"), 1u);
  for (const HeadMap& map : facts.maps)
    EXPECT_TRUE(holds(svg, fmt::format(">{:.3g}</text>", map.weights.max().item<double>())));
  // Rows smaller than a letter: words at some of them, further apart than they are high.
  const AttentionSummary larger = inspect(*small_model({"segment_size=700"}), {{}, {}, 1}, 1);
  AttentionSummary many = larger;
  many.masks.at(0) = LayerMask{core::AttendTable({core::SpanKind::tokens, 300})};
  many.words.assign(300, "w");
  many.maps.assign(1,
                   {0, 0, "attention", core::MapAxis::queries, core::MapAxis::keys, at::rand({300, 300}, at::kDouble)});
  const size_t words = count(svg_of({&many, nullptr}), ">w</text>");
  EXPECT_GT(words, 2u * 10u);
  EXPECT_LT(words, 2u * 40u);
}

TEST(AttentionPicture, LargeMapsShowTheLargestWeightOfABlock) {
  AttentionSummary facts{1, 1, {}};
  facts.masks.emplace(0, LayerMask{core::AttendTable({core::SpanKind::tokens, 1000})});
  facts.words.assign(1000, "w");
  at::Tensor weights = at::zeros({1000, 1000}, at::kDouble);
  weights[500][701] = 1.0;
  facts.maps.push_back({0, 0, "attention", core::MapAxis::queries, core::MapAxis::keys, weights});
  const Raster raster = read_png(png_of(svg_of({&facts, nullptr})));
  int64_t dark = 0;
  for (const Colour& dot : raster.dots) dark += dot.red == 8 && dot.green == 48 ? 1 : 0;
  EXPECT_GT(dark, 0);
  EXPECT_LT(raster.width, 1200);
}

TEST(Scalars, AreDrawnOverSteps) {
  std::vector<ScalarPoint> points;
  for (int64_t step = 10; step <= 200; step += 10) {
    points.push_back({step,
                      {{"layers.0.sigma_lambda", {0.5 + 0.001 * static_cast<double>(step), 0.4}},
                       {"layers.1.sigma_lambda", {0.3, NAN}}}});
  }
  const std::string svg = scalars_svg(points);
  for (const char* part : {"layers.0.sigma_lambda", "layers.1.sigma_lambda", "<polyline", "head 1", "step 10"})
    EXPECT_TRUE(holds(svg, part)) << part;
  const std::string text = to_text(points);
  for (const char* part : {"step 10", "step 200", "0.700", "0.400"})
    EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
  EXPECT_EQ(to_node(points).size(), 20u);
  const std::string html = to_html(points), last = to_html({points.back()});
  for (const char* part : {"<summary>the numbers</summary>", ">200</td>", ">0.51</td>", ">0.7</td>", ">nan</td>"})
    EXPECT_TRUE(holds(html, part)) << part;
  EXPECT_TRUE(holds(last, "<th class=\"left\">scalar</th><th>head</th><th>value</th>")) << last;
  EXPECT_FALSE(holds(last, "step")) << last;
  // Parts of a loss have no heads.
  const std::vector<ScalarPoint> losses = {{10, {{"loss.box", {0.25}}}}, {20, {{"loss.box", {0.125}}}}};
  for (const std::string& shown : {scalars_svg(losses), to_text(losses), to_html(losses)}) {
    EXPECT_TRUE(holds(shown, "loss.box"));
    EXPECT_FALSE(holds(shown, "head 0") || holds(shown, "loss.box     0") || holds(shown, ">0</td>")) << shown;
  }
  EXPECT_EQ(scalars_svg({}), "");
}

TEST(CostSummary, TellPartsAndWhatMemoriesAdd) {
  const auto model = small_model({"memory[0].type=segment_cache", "memory[0].mem_len=4"});
  const inspect::ModelCost cost = inspect::count_cost(*model, {2});
  const std::string text = to_text(cost), html = to_html(cost);
  for (const char* part : {"4 tokens in each of 2 sequences", "feed_forward", "added by segment_cache", "FLOPs"}) {
    EXPECT_TRUE(holds(text, part)) << text;
    EXPECT_TRUE(holds(html, part)) << html;
  }
  const base::Node node = to_node(cost);
  int64_t flops = 0;
  for (const base::Node& part : node.at("parts").items()) flops += part.at("flops").as_int();
  EXPECT_EQ(flops, node.at("all").at("flops").as_int());
  EXPECT_EQ(node.at("added").items().at(0).at("part").as_string(), "segment_cache");
}

}  // namespace
}  // namespace mnemo::inspect
