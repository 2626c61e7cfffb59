#include "attention/registry.h"

#include "attention/bigbird.h"
#include "attention/linear.h"
#include "attention/linformer.h"
#include "attention/lsh.h"
#include "attention/relative.h"
#include "attention/shifted_window.h"
#include "attention/sliding_window.h"
#include "attention/softmax.h"
#include "attention/spatial_reduction.h"

namespace mnemo::attention {
namespace {

template <class A>
void add(base::OptionTypes& types, base::Registry<Factory>& factories, const char* name, const char* meaning) {
  types.add<typename A::Options>(name, meaning);
  factories.add(name, [](const base::Node& options, const core::AttentionBuild& build) {
    return std::make_unique<A>(base::read_typed_options<typename A::Options>(options), build);
  });
}

}  // namespace

void add_attentions(base::OptionTypes& types, base::Registry<Factory>& factories) {
  add<Softmax>(types, factories, "softmax", "scaled dot-product attention");
  add<Relative>(types, factories, "relative", "Transformer-XL: relative attention with content and position terms");
  add<Linear>(types, factories, "linear", "linear attention with ELU, T2R or RFA features");
  add<SlidingWindow>(types, factories, "sliding_window", "softmax attention within a window");
  add<BigBird>(types, factories, "bigbird", "BigBird: global, local and random blocks; not causal");
  add<Lsh>(types, factories, "lsh", "Reformer: queries and keys are shared and attend within hash buckets");
  add<Linformer>(types, factories, "linformer", "Linformer: keys and values projected along the sequence; not causal");
}

void add_image_attentions(base::OptionTypes& types, base::Registry<Factory>& factories) {
  add<SpatialReduction>(types, factories, "spatial_reduction", "PVT and PVTv2: keys and values are spatially reduced");
  add<ShiftedWindow>(types, factories, "shifted_window",
                     "Swin: attention inside windows, with a relative position bias");
}

}  // namespace mnemo::attention
