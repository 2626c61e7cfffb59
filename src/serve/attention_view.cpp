#include "serve/attention_view.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "base/json_value.h"
#include "inspect/attention_record.h"
#include "models/text_model.h"
#include "serve/api_error.h"

namespace mnemo::serve {
namespace {

constexpr int64_t kReadTokens = 4096;
constexpr double kMostWeights = 1 << 28;  // of a segment, in all layers: seconds of work

base::Node to_node(const core::WeightMap& map, const inspect::LayerRecord& record, int64_t last) {
  const core::AttendTable& table = record.mask.table;
  const at::Tensor all = map.weights[0];  // [H,R,C]
  const int64_t row = map.rows == core::MapAxis::queries ? table.token_offset() + last : all.size(1) - 1;
  const at::Tensor weights = all.select(1, row).mean(0).to(at::kCPU, at::kDouble).contiguous();
  const bool keys = map.columns == core::MapAxis::keys;
  base::Node columns = base::Node::array();
  for (int64_t i = 0; i < weights.size(0); ++i) columns.push_back(base::rounded(weights[i].item<double>()));
  return base::Node::table({{"layer", record.layer + 1},
                            {"name", map.name},
                            {"memory", keys ? table.num_context() + table.token_offset() : weights.size(0)},
                            {"weights", std::move(columns)}});
}

}  // namespace

base::Node last_attention(const infer::TextSession& like, bool resets, const std::string& text,
                          const base::ShouldStop& should_stop) {
  const auto& model = models::as<models::TextModel>(*like.session().shared_engine()->model(), "serve");
  const std::vector<int64_t> tokens = like.prompt(text).tokens;
  const int64_t size = model.segment_size(), segments = static_cast<int64_t>(tokens.size()) / size;
  if (segments == 0)
    throw ApiError(400, fmt::format("'prompt': expected a whole segment, {} tokens, found {}", size, tokens.size()),
                   "prompt");
  const auto& stack = model.options().backbone.stack();
  const double weights = static_cast<double>(size) * static_cast<double>(size) *
                         static_cast<double>(stack.num_heads * model.backbone().num_layers());
  if (weights > kMostWeights)
    throw ApiError(400,
                   fmt::format("this model has {:.0f} weights of attention in a segment; at most {:.0f} are shown",
                               weights, kMostWeights),
                   "", "attention_too_large");
  const int64_t first = std::max<int64_t>(0, segments - std::max<int64_t>(1, kReadTokens / size));
  inspect::AttentionRecorder recorder(model, 1, should_stop);
  std::vector<int64_t> layers(static_cast<size_t>(model.backbone().num_layers()));
  std::iota(layers.begin(), layers.end(), int64_t{0});
  base::Node all = base::Node::array();
  for (int64_t i = first; i < segments; ++i) {
    core::Segment segment;
    segment.tokens = at::tensor(at::ArrayRef<int64_t>(tokens.data() + i * size, static_cast<size_t>(size)))
                         .view({1, size});
    segment.part = {true, true};
    const at::Tensor reset = resets && i > first ? at::ones({1}, at::kBool) : at::Tensor();
    if (i + 1 < segments) {
      recorder.run(segment, reset);
    } else {
      recorder.record(segment, layers, reset, [&](const inspect::LayerRecord& record) {
        for (const core::WeightMap& map : record.view.maps) all.push_back(to_node(map, record, size - 1));
      });
    }
  }
  return base::Node::table({{"object", "attention"}, {"layers", std::move(all)}});
}

}  // namespace mnemo::serve
