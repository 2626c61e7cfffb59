#include "models/convert.h"

#include <torch/types.h>

#include "base/error.h"
#include "models/pair_model.h"
#include "models/presets.h"
#include "models/registry.h"
#include "models/replaced_attention.h"
#include "models/text_model.h"

namespace mnemo::models {

std::unique_ptr<TextModel> to_t2r(const TextModel& model, std::optional<int64_t> num_features, uint64_t seed) {
  ModelOptions options = model.options();
  const std::string& type = options.backbone.stack().attention.type();
  base::require(type == "softmax",
                "t2r: expected a softmax model, whose q, k, v and o projections are copied; found "
                "backbone.attention.type = \"{}\"",
                type);
  base::Node attention = base::Node::table({{"type", "linear"}, {"feature_map", "t2r"}});
  if (num_features) attention.set("num_features", *num_features);
  options.backbone.stack().attention = replaced_attention(options.backbone, attention, "t2r");
  const layers::ParameterSet& from = model.parameters();
  auto made = build_as<TextModel>(options, seed, from.all().front().tensor.scalar_type());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : made->parameters().named()) {
    const at::Tensor source = from.find(name);
    if (source.defined()) at::Tensor(tensor).copy_(source);
  }
  made->commit(model.initial_state(1));
  return made;
}

std::unique_ptr<TextModel> to_encoder(const Model& model) {
  const ModelOptions& whole = as<PairModel>(model, "convert: --to source_encoder").options();
  const EncoderDecoderOptions& pairs = whole.backbone.pairs();
  base::require(
      pairs.position.type == backbones::PositionOptions::Type::none && pairs.encoder.memory.empty(),
      "convert: --to source_encoder: expected an encoder with relative positions and without memories, as T5 has");
  constexpr int64_t kSegment = 512;  // T5's texts; its positions have no limit
  ModelOptions options;
  options.embedding.vocab_size = whole.embedding.source_vocab_size.value_or(whole.embedding.vocab_size);
  options.embedding.scale = whole.embedding.scale;
  options.embedding.padding_token = whole.embedding.padding_token;
  options.backbone = BackboneOptions("encoder");
  static_cast<backbones::LayerStackOptions&>(options.backbone.stack()) = pairs.encoder_stack();
  options.backbone.stack().position = {};
  options.backbone.stack().attention = pairs.encoder.attention;
  options.head = base::Node::table({{"type", "classification"}, {"num_classes", 0}, {"pool", "mean"}});
  options.segment_size = kSegment;
  // Read again, so that every option has gone through its checks.
  const layers::ParameterSet& from = model.parameters();
  auto made = build_as<TextModel>(read_model_options(base::write_options(options)), 0,
                                  from.all().front().tensor.scalar_type());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : made->parameters().named()) {
    constexpr std::string_view kBackbone = "backbone.";
    std::string theirs = name;
    if (name.starts_with(kBackbone)) theirs.insert(kBackbone.size(), "encoder.");
    if (name == "embed.weight" && from.find("encoder_embed.weight").defined()) theirs = "encoder_embed.weight";
    const at::Tensor source = from.find(theirs);
    base::ensure(source.defined(), "'{}' of the encoder is missing", theirs);
    at::Tensor(tensor).copy_(source);
  }
  return made;
}

}  // namespace mnemo::models
