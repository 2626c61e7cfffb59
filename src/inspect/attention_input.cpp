#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text_format.h"
#include "inspect/attention_summary.h"
#include "models/text_model.h"

namespace mnemo::inspect {
namespace {

using core::MapAxis;

/// The rows of the table that are not padding, [Q] bool; undefined = all.
at::Tensor real_rows(const core::AttendTable& table) {
  if (!table.valid().defined() || table.is_cross()) return {};
  return table.valid()[0].narrow(0, table.num_context(), table.num_rows());
}

std::vector<HeadShare> shares_of(const HeadMap& map, const LayerMask& mask) {
  if (map.rows != MapAxis::queries || map.columns != MapAxis::keys) return {};
  const core::AttendTable& table = mask.table;
  const at::Tensor real = real_rows(table);
  std::vector<HeadShare> shares;
  int64_t first = 0;
  for (const core::Span& rows : table.rows()) {
    at::Tensor weights = map.weights.narrow(0, first, rows.length).abs();
    at::Tensor past = map.past.defined() ? map.past.narrow(0, first, rows.length).abs() : at::Tensor();
    if (real.defined()) {
      const at::Tensor here = real.narrow(0, first, rows.length);
      weights = weights.index({here});
      if (past.defined()) past = past.index({here});
    }
    first += rows.length;
    if (weights.size(0) == 0) continue;
    at::Tensor total = past.defined() ? weights.sum(1) + past : weights.sum(1);
    total = at::where(total > 0.0, total, 1.0);
    weights = weights / total.unsqueeze(1);
    if (past.defined()) past = past / total;
    HeadShare share{map.layer, map.head, kind_of(rows), {}};
    const auto add = [&](const std::string& kind, double value) {
      const auto found = std::find_if(share.to.begin(), share.to.end(),
                                      [&](const auto& to) { return to.first == kind; });
      if (found == share.to.end())
        share.to.emplace_back(kind, value);
      else
        found->second += value;
    };
    if (past.defined()) add("past", past.mean().item<double>());
    int64_t key = 0;
    for (const core::Span& keys : spans_of(mask, MapAxis::keys, table.num_keys())) {
      if (keys.length > 0) add(kind_of(keys), weights.narrow(1, key, keys.length).sum(1).mean().item<double>());
      key += keys.length;
    }
    shares.push_back(std::move(share));
  }
  return shares;
}

/// Whether `after` has other rows than `before`.
bool differs(const core::State& before, const core::State& after) {
  const auto old = core::save(before), now = core::save(after);
  return !std::equal(old.begin(), old.end(), now.begin(), now.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.sizes() == other.second.sizes() && one.second.equal(other.second);
  });
}

/// Whether a segment leaves anything to the next: without a memory, or where every segment stands alone, none does.
bool fills_memory(const models::TextModel& model, const data::Batch& segment) {
  const data::Batch first = to(segment, core::device_of(model));
  return differs(model.initial_state(1), AttentionRecorder(model).run(first.input).state);
}

/// The last of the segments with the most real tokens, of those whose memory has been filled if there are any.
int64_t fullest_segment(const models::TextModel& model, const std::vector<data::Batch>& input) {
  const auto is_filled = [&](size_t i) {
    return i > 0 && !(input[i].reset.defined() && input[i].reset.any().item<bool>());
  };
  bool any_filled = false;
  for (size_t i = 1; i < input.size(); ++i) any_filled |= is_filled(i);
  any_filled = any_filled && fills_memory(model, input[0]);
  int64_t fullest = 0, most = -1;
  for (size_t i = 0; i < input.size(); ++i) {
    if (any_filled && !is_filled(i)) continue;
    const core::Segment& rows = input[i].input;
    const int64_t tokens = rows.valid.defined() ? rows.valid[0].sum().item<int64_t>() : rows.tokens.size(1);
    if (tokens < most) continue;
    most = tokens;
    fullest = static_cast<int64_t>(i) + 1;
  }
  return fullest;
}

/// Summary of these heads, from the records of a segment's layers.
AttentionSummary summary_of(const std::vector<LayerRecord>& records, const std::vector<int64_t>& heads) {
  AttentionSummary facts;
  for (const LayerRecord& layer : records) {
    facts.masks.emplace(layer.layer, layer.mask);
    for (const core::WeightMap& map : layer.view.maps) {
      const int64_t map_heads = map.weights.size(1);
      for (const int64_t head : heads) {
        if (head >= map_heads) continue;
        const auto of_head = [&](const at::Tensor& tensor) {
          return tensor.defined() ? tensor[0][head].to(at::kCPU, at::kDouble).contiguous() : at::Tensor();
        };
        require_numbers(map.weights, layer.layer);
        facts.maps.push_back(
            {layer.layer, head, map.name, map.rows, map.columns, of_head(map.weights), of_head(map.past)});
        for (HeadShare& share : shares_of(facts.maps.back(), layer.mask)) facts.shares.push_back(std::move(share));
      }
    }
    for (const core::GateValues& gate : layer.view.gates) facts.gates.push_back(spread_of(layer.layer, gate));
  }
  return facts;
}

int64_t num_weights(const AttentionSummary& facts) {
  int64_t sum = 0;
  for (const HeadMap& map : facts.maps) sum += map.weights.numel() + (map.past.defined() ? map.past.numel() : 0);
  return sum;
}

}  // namespace

std::vector<int64_t> chosen_numbers(const std::string& text, int64_t count, const std::string& what) {
  const auto fail = [&] {
    base::input_error("{}: expected numbers from 0 to {}, such as 0 or 0,2 or 0-{}, found '{}'", what, count - 1,
                      count - 1, text);
  };
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const char *at = text.data() + begin, *stop = text.data() + end;
    int64_t first = 0, last = 0;
    auto read = std::from_chars(at, stop, first);
    if (read.ec != std::errc() || first < 0) fail();
    last = first;
    if (read.ptr != stop && *read.ptr == '-') read = std::from_chars(read.ptr + 1, stop, last);
    if (read.ec != std::errc() || read.ptr != stop || last < first || last >= count) fail();
    for (int64_t number = first; number <= last; ++number) {
      if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
    }
    begin = end + 1;
  }
  return numbers;
}

void require_numbers(const at::Tensor& weights, int64_t layer) {
  if (weights.isnan().any().item<bool>())
    throw base::NotFinite(fmt::format("inspect: the attention weights of layer {} are not finite", layer));
}

InputAttention look_at_input(const models::TextModel& model, const std::vector<data::Batch>& input,
                             const std::vector<std::vector<std::string>>& words, const AttentionChoice& choice,
                             int64_t max_weights) {
  const auto num_segments = static_cast<int64_t>(input.size());
  const backbones::EncoderOptions& stack = model.options().backbone.stack();
  const auto number = [](int64_t count) { return count == 1 ? std::string("0") : fmt::format("0-{}", count - 1); };
  const std::vector<int64_t> layers = chosen_numbers(choice.layers.value_or(number(stack.num_layers)), stack.num_layers,
                                                     "inspect: --layers");
  const std::vector<int64_t> heads = chosen_numbers(choice.heads.value_or(number(stack.num_heads)), stack.num_heads,
                                                    "inspect: --heads");
  base::require(num_segments > 0, "inspect: the input has no tokens");
  const int64_t chosen = choice.segment ? *choice.segment : fullest_segment(model, input);
  base::require(chosen >= 1 && chosen <= num_segments,
                "inspect: --segment: the input has {}; expected 1 to {}, found {}",
                base::counted(num_segments, "segment"), num_segments, chosen);

  AttentionRecorder recorder(model);
  InputAttention found;
  // Weights of all segments held, and of one: at first those among its own tokens.
  int64_t held = 0, each = input[0].input.tokens.numel() * input[0].input.tokens.numel() *
                           static_cast<int64_t>(layers.size() * heads.size());
  for (int64_t i = 1; i <= num_segments; ++i) {
    const int64_t together = i < chosen ? (chosen - i + 1) * each : held + each;
    if (i > chosen && together > max_weights) break;
    const data::Batch tokens = to(input[static_cast<size_t>(i - 1)], core::device_of(model));
    if (i < chosen && together > max_weights) {
      recorder.run(tokens.input, tokens.reset);
      found.segments.clear();
      held = 0;
      continue;
    }
    AttentionSummary facts = summary_of(recorder.record(tokens.input, layers, tokens.reset), heads);
    base::require(!facts.maps.empty(),
                  "inspect: attention '{}' does not provide its weights; without an input, inspect shows parameters, "
                  "state and cost",
                  stack.attention.type());
    facts.segment = i;
    facts.num_segments = num_segments;
    facts.words = words[static_cast<size_t>(i - 1)];
    each = num_weights(facts);
    held += each;
    found.segments.push_back(std::move(facts));
    while (held > max_weights && found.segments.front().segment < std::min(i, chosen)) {
      held -= num_weights(found.segments.front());
      found.segments.erase(found.segments.begin());
    }
  }
  found.chosen = static_cast<size_t>(chosen - found.segments.front().segment);
  return found;
}

}  // namespace mnemo::inspect
