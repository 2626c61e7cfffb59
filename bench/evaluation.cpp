#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "base/text_table.h"
#include "bench/bench.h"
#include "bench/case.h"

namespace mnemo::bench {
namespace {

/// The 12-layer model of Transformer-XL on characters: segments of 512 tokens, and an attention length of 3,800.
const BenchCase& long_case() {
  static const BenchCase transformer_xl = {
      "transformer_xl_3800", "relative", 12, 512, 8, 2048, 512, 3288, 0, 0, 1, 1, 512};
  return transformer_xl;
}

/// Mean loss of a segment's tokens after the first `skip`.
double segment_loss(const models::Model& model, const at::Tensor& text, int64_t skip, core::State& state) {
  core::Segment segment;
  segment.tokens = text.narrow(1, 0, text.size(1) - 1);
  core::StepResult step = model.forward(segment, state);
  state = std::move(step.state);
  const int64_t counted = segment.tokens.size(1) - skip;
  return model.nll(step.hidden.narrow(1, skip, counted), text.narrow(1, skip + 1, counted)).mean().item<double>();
}

}  // namespace

BenchReport bench_evaluation(const BenchArguments& arguments, Bars& bars) {
  const BenchCase& c = long_case();
  const int64_t window = c.mem_len + c.segment;
  const c10::InferenceMode inference;
  const std::shared_ptr<models::Model> model = c.build();
  const at::Tensor text = at::randint(0, core::token_input(model->input()).vocab_size, {1, window + 1}, at::kLong);
  core::State full = model->initial_state(1);  // after enough tokens to fill the cache
  for (int64_t begin = 0; begin < c.mem_len; begin += c.segment)
    segment_loss(*model, text.narrow(1, begin, c.segment + 1), 0, full);
  const at::Tensor last = text.narrow(1, c.mem_len, c.segment + 1);
  std::vector<double> cached, anew, ratios;
  for (int64_t round = -1; round < arguments.repeats; ++round) {
    core::State state = full;
    const double a = fastest_of(1, [&] { segment_loss(*model, last, 0, state); }) / static_cast<double>(c.segment);
    core::State empty = model->initial_state(1);
    const double b = fastest_of(1, [&] { segment_loss(*model, text, window - 1, empty); });
    if (round < 0) continue;  // warm-up
    cached.push_back(a);
    anew.push_back(b);
    ratios.push_back(b / a);
  }
  const Rounds ratio = rounds_of(ratios), with = rounds_of(cached), without = rounds_of(anew);
  bars.at_least("evaluation", c.name, ratio.median,
                fmt::format("{}: times as fast as computing {} tokens anew", c.name, window));

  base::TextTable table({"Transformer-XL, 12 layers, a token", "ms, median", "least", "most"},
                        {base::TextTable::Align::left, base::TextTable::Align::right, base::TextTable::Align::right,
                         base::TextTable::Align::right});
  auto add = [&](const std::string& name, const Rounds& seconds) {
    table.add_row({name, fmt::format("{:.3f}", seconds.median * 1e3), fmt::format("{:.3f}", seconds.least * 1e3),
                   fmt::format("{:.3f}", seconds.most * 1e3)});
  };
  add(fmt::format("segments of {}, a cache of {}", c.segment, c.mem_len), with);
  add(fmt::format("{} tokens computed anew", window), without);
  BenchReport report;
  report.figures = base::Node::table({{"case", c.name},
                                      {"attention_length", window},
                                      {"segment", c.segment},
                                      {"cached", as_node(with)},
                                      {"anew", as_node(without)},
                                      {"times", as_node(ratio)}});
  report.text = fmt::format("{}\n{} times as fast with the cache\n", table.text(), range_text(ratio));
  return report;
}

}  // namespace mnemo::bench
