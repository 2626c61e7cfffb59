#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "core/backbone.h"
#include "infer/engine.h"
#include "models/presets.h"
#include "models/registry.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kLengthWords = 10'000, kOutputs = 16, kTimed = 16;
constexpr int64_t kLengths[] = {64, 256, 1024, 4096};

/// An attention of the decoder: type, then its size across and in causal use. All but softmax keep a memory of one size.
struct LengthKind {
  const char* name;
  base::Node across, causal;
};

/// As in Peng et al. 2022, figure 1: softmax, ABC of 32 and 8 slots, RFA of 256 and 128 (a sine and a cosine of each of
/// half as many projections), T2R of 32 and 4 features.
std::vector<LengthKind> length_kinds() {
  const auto slots = [](int64_t count) { return base::Node::table({{"type", "abc"}, {"num_slots", count}}); };
  const auto features = [](const char* map, int64_t count) {
    return base::Node::table({{"type", "linear"}, {"feature_map", map}, {"num_features", count}});
  };
  const base::Node softmax = base::Node::table({{"type", "softmax"}});
  return {{"softmax", softmax, softmax},
          {"ABC", slots(32), slots(8)},
          {"RFA", features("rfa", 128), features("rfa", 64)},
          {"T2R", features("t2r", 32), features("t2r", 4)}};
}

/// transformer_base with that attention in its decoder.
std::shared_ptr<models::Model> length_model(const LengthKind& kind) {
  models::ModelOptions options = models::read_model_options(
      base::Node::table({{"preset", "transformer_base"}, {"embedding", base::Node::table({{"shared", "all"}})}}));
  options.embedding.vocab_size = kLengthWords;
  const base::OptionTypes& types = models::Mechanisms::all().attention_types;
  options.backbone.pairs().decoder.attention = types.read(kind.causal);
  options.backbone.pairs().decoder.cross_attention = types.read(kind.across);
  std::shared_ptr<models::Model> model = models::build(options);
  auto generator = at::detail::createCPUGenerator(1);
  spread_parameters(model->parameters(), generator);
  return model;
}

/// Greedy decoding of kOutputs translations of one length, their sources as long.
class LengthSubject {
 public:
  explicit LengthSubject(const LengthKind& kind) : model_(length_model(kind)), engine_(model_) {}

  /// Goes to the middle of an output of `length` tokens, where a token takes its mean time: what a token reads grows
  /// linearly, if at all.
  void go_to_middle(int64_t length) {
    const c10::InferenceMode inference;
    auto generator = at::detail::createCPUGenerator(2);
    // The time does not depend on the values of the encoder's output, so no encoder runs.
    const core::State read = model_->initial_state(kOutputs).map_declared(
        [&](const core::Field& field, const at::Tensor& tensor) {
          if (field.path == "source.encoded.encoder_output")
            return at::randn({kOutputs, length, model_->backbone().dim()}, generator);
          if (field.path == "source.encoded.encoder_mask") return at::ones({kOutputs, length}, at::kBool);
          return tensor;
        });
    middle_ = engine_.begin(read);
    base::Random random{3};
    for (infer::EngineSequence& sequence : middle_) {
      std::vector<int64_t> tokens(static_cast<size_t>(length / 2));
      for (int64_t& token : tokens) token = 4 + static_cast<int64_t>(random.below(kLengthWords - 4));
      const infer::Engine::Step step{&sequence, tokens, nullptr};
      engine_.run({&step, 1});
    }
  }

  /// Seconds for a token of every output.
  double seconds() const {
    std::vector<infer::EngineSequence> sequences = middle_;
    std::vector<int64_t> last(kOutputs, 4);
    std::vector<float> logits(static_cast<size_t>(kOutputs * kLengthWords));
    const auto token = [&] {
      std::vector<infer::Engine::Step> steps;
      for (size_t i = 0; i < sequences.size(); ++i)
        steps.push_back({&sequences[i], std::span(last).subspan(i, 1), logits.data() + i * kLengthWords});
      engine_.run(steps);
      for (size_t i = 0; i < sequences.size(); ++i)
        last[i] = std::max_element(steps[i].logits, steps[i].logits + kLengthWords) - steps[i].logits;
    };
    token();  // buffers of the copies grow
    return median(seconds_of(kTimed, token));
  }

  /// Bytes of the state of an output.
  int64_t num_bytes() const { return middle_.front().num_bytes(); }

 private:
  std::shared_ptr<models::Model> model_;
  infer::Engine engine_;
  std::vector<infer::EngineSequence> middle_;
};

struct LengthRow {
  int64_t length;
  std::vector<Rounds> seconds = {},
                      times = {};  ///< of each kind for a token of all outputs; how many times as fast ABC is
  std::vector<int64_t> bytes = {};
};

}  // namespace

BenchReport bench_translation_lengths(const BenchArguments& arguments, Bars& bars) {
  const std::vector<LengthKind> kinds = length_kinds();
  constexpr size_t kSoftmax = 0, kAbc = 1;
  std::vector<std::unique_ptr<LengthSubject>> subjects;
  for (const LengthKind& kind : kinds) subjects.push_back(std::make_unique<LengthSubject>(kind));
  std::vector<LengthRow> rows;
  for (const int64_t length : kLengths) {
    for (const auto& subject : subjects) subject->go_to_middle(length);
    std::vector<std::vector<double>> seconds(kinds.size()), times(kinds.size());
    for (int64_t round = -1; round < arguments.repeats; ++round) {
      std::vector<double> now;
      for (const auto& subject : subjects) now.push_back(subject->seconds());
      if (round < 0) continue;  // warm-up
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        seconds[kind].push_back(now[kind]);
        times[kind].push_back(now[kind] / now[kAbc]);
      }
    }
    LengthRow row{.length = length};
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      row.seconds.push_back(rounds_of(seconds[kind]));
      row.times.push_back(rounds_of(times[kind]));
      row.bytes.push_back(subjects[kind]->num_bytes());
    }
    rows.push_back(std::move(row));
  }
  using Align = base::TextTable::Align;
  std::vector<std::string> columns = {"output length"};
  for (const LengthKind& kind : kinds) columns.push_back(fmt::format("{}, ms", kind.name));
  for (const LengthKind& kind : kinds) columns.push_back(fmt::format("{}, KB", kind.name));
  for (size_t kind = 0; kind < kinds.size(); ++kind)
    if (kind != kAbc) columns.push_back(fmt::format("ABC times {}", kinds[kind].name));
  base::TextTable table(columns, std::vector<Align>(columns.size(), Align::right));
  base::Node results = base::Node::array();
  for (const LengthRow& row : rows) {
    std::vector<std::string> cells = {std::to_string(row.length)};
    base::Node node = base::Node::table({{"length", row.length}});
    for (const Rounds& rounds : row.seconds) cells.push_back(fmt::format("{:.2f}", rounds.median * 1e3));
    for (const int64_t bytes : row.bytes) cells.push_back(fmt::format("{:.0f}", static_cast<double>(bytes) / 1e3));
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      if (kind != kAbc) cells.push_back(range_text(row.times[kind]));
      node.set(kinds[kind].name, base::Node::table({{"seconds", as_node(row.seconds[kind])},
                                                    {"bytes", row.bytes[kind]},
                                                    {"abc_times", as_node(row.times[kind])}}));
    }
    table.add_row(cells);
    results.push_back(std::move(node));
  }
  // The least of the rounds: the claim is about the growth, which is smaller than the noise of a median.
  const double growth = rows.back().seconds[kAbc].least / rows.front().seconds[kAbc].least;
  bars.at_most("translation_lengths", "abc", growth,
               fmt::format("ABC: time of a token of {} over one of {}", kLengths[3], kLengths[0]));
  bars.at_least("translation_lengths", "softmax", rows.back().times[kSoftmax].median,
                fmt::format("ABC at {}: times softmax", kLengths[3]));
  return {
      .figures = base::Node::table({{"results", results}, {"abc_growth", growth}}),
      .text = table.text() +
              fmt::format("\nABC: a token of {} takes {:.3f} times one of {}. ms: for a token of each of {} outputs "
                          "of transformer_base, in the middle of the output; the source is as long. KB: state of an "
                          "output\n",
                          kLengths[3], growth, kLengths[0], kOutputs)};
}

}  // namespace mnemo::bench
