#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"
#include "core/backbone.h"
#include "infer/engine.h"
#include "models/presets.h"

namespace mnemo::bench {
namespace {

constexpr int64_t kLengthWords = 10'000, kOutputs = 16, kTimed = 16;
constexpr int64_t kLengths[] = {64, 256, 1024, 4096};

/// transformer_base, with softmax attention or with ABC in its decoder: 32 slots across and 8 causal ones.
std::shared_ptr<models::Model> length_model(bool abc) {
  models::ModelOptions options = models::read_model_options(
      base::Node::table({{"preset", "transformer_base"}, {"embedding", base::Node::table({{"shared", "all"}})}}));
  options.embedding.vocab_size = kLengthWords;
  if (abc) {
    const auto slots = [](int64_t count) { return base::Node::table({{"type", "abc"}, {"num_slots", count}}); };
    options.backbone.pairs().decoder.attention = slots(8);
    options.backbone.pairs().decoder.cross_attention = slots(32);
  }
  std::shared_ptr<models::Model> model = models::build(options);
  auto generator = at::detail::createCPUGenerator(1);
  spread_parameters(model->parameters(), generator);
  return model;
}

/// Greedy decoding of kOutputs translations of one length, their sources as long.
class LengthSubject {
 public:
  explicit LengthSubject(bool abc) : model_(length_model(abc)), engine_(model_) {}

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
  Rounds softmax, abc, speed;  ///< seconds for a token of all outputs; how many times as fast ABC is
  int64_t softmax_bytes, abc_bytes;
};

}  // namespace

BenchReport bench_translation_lengths(const BenchArguments& arguments, Bars& bars) {
  LengthSubject softmax(false), abc(true);
  std::vector<LengthRow> rows;
  for (const int64_t length : kLengths) {
    softmax.go_to_middle(length);
    abc.go_to_middle(length);
    std::vector<double> theirs, ours, speed;
    for (int64_t round = -1; round < arguments.repeats; ++round) {
      const double plain = softmax.seconds(), bounded = abc.seconds();
      if (round < 0) continue;  // warm-up
      theirs.push_back(plain);
      ours.push_back(bounded);
      speed.push_back(plain / bounded);
    }
    rows.push_back(
        {length, rounds_of(theirs), rounds_of(ours), rounds_of(speed), softmax.num_bytes(), abc.num_bytes()});
  }
  using Align = base::TextTable::Align;
  base::TextTable table({"output length", "softmax, ms", "ABC, ms", "times as fast", "softmax, KB", "ABC, KB"},
                        std::vector<Align>(6, Align::right));
  base::Node results = base::Node::array();
  for (const LengthRow& row : rows) {
    table.add_row({std::to_string(row.length), fmt::format("{:.2f}", row.softmax.median * 1e3),
                   fmt::format("{:.2f}", row.abc.median * 1e3), range_text(row.speed),
                   fmt::format("{:.0f}", static_cast<double>(row.softmax_bytes) / 1e3),
                   fmt::format("{:.0f}", static_cast<double>(row.abc_bytes) / 1e3)});
    results.push_back(base::Node::table({{"length", row.length},
                                         {"softmax_seconds", as_node(row.softmax)},
                                         {"abc_seconds", as_node(row.abc)},
                                         {"times_softmax", as_node(row.speed)},
                                         {"softmax_bytes", row.softmax_bytes},
                                         {"abc_bytes", row.abc_bytes}}));
  }
  // The least of the rounds: the claim is about the growth, which is smaller than the noise of a median.
  const double growth = rows.back().abc.least / rows.front().abc.least;
  bars.at_most("translation_lengths", "abc", growth,
               fmt::format("ABC: time of a token of {} over one of {}", kLengths[3], kLengths[0]));
  bars.at_least("translation_lengths", "softmax", rows.back().speed.median,
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
