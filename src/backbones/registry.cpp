#include "backbones/registry.h"

#include <type_traits>

#include "backbones/decoder.h"
#include "backbones/encoder.h"
#include "backbones/pvt.h"
#include "backbones/pvt_v2.h"
#include "backbones/resnet.h"
#include "backbones/swin.h"
#include "backbones/vit.h"
#include "base/error.h"

namespace mnemo::backbones {

const base::Registry<StackEntry>& stack_backbones() {
  static const base::Registry<StackEntry> all = [] {
    base::Registry<StackEntry> made("backbone");
    made.add("decoder", {"causal", true,
                         [](const EncoderOptions& options, const layers::Scope& scope,
                            const core::AttentionMaker& attention) -> std::unique_ptr<core::Backbone> {
                           return std::make_unique<Decoder>(options, scope, attention);
                         }});
    made.add("encoder", {"bidirectional", false,
                         [](const EncoderOptions& options, const layers::Scope& scope,
                            const core::AttentionMaker& attention) -> std::unique_ptr<core::Backbone> {
                           return std::make_unique<Encoder>(options, scope, attention);
                         }});
    return made;
  }();
  return all;
}

const std::string& stack_type(bool causal) {
  for (const std::string& name : stack_backbones().names()) {
    if (stack_backbones().find(name).causal == causal) return name;
  }
  throw base::InternalError("no such backbone is registered");
}

std::unique_ptr<core::ImageBackbone> make_vision_backbone(const VisionOptions& options, const VisionBuild& build) {
  return std::visit(
      [&](const auto& chosen) -> std::unique_ptr<core::ImageBackbone> {
        return std::make_unique<typename std::decay_t<decltype(chosen)>::Backbone>(chosen, build);
      },
      options);
}

}  // namespace mnemo::backbones
