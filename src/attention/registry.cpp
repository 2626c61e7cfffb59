#include "attention/registry.h"

#include "attention/bigbird.h"
#include "attention/disentangled.h"
#include "attention/linear.h"
#include "attention/linformer.h"
#include "attention/lsh.h"
#include "attention/relative.h"
#include "attention/relative_buckets.h"
#include "attention/shifted_window.h"
#include "attention/sliding_window.h"
#include "attention/softmax.h"
#include "attention/spatial_reduction.h"

namespace mnemo::attention {
using core::add_attention;

void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries) {
  add_attention<Softmax>(types, entries, "softmax", "scaled dot-product attention");
  add_attention<Relative>(types, entries, "relative",
                          "Transformer-XL: relative attention with content and position terms");
  add_attention<Linear>(types, entries, "linear", "linear attention with ELU, T2R or RFA features");
  add_attention<SlidingWindow>(types, entries, "sliding_window", "local softmax attention, within a window");
  add_attention<BigBird>(types, entries, "bigbird", "BigBird: global, local and random blocks; not causal");
  add_attention<Lsh>(types, entries, "lsh", "Reformer: queries and keys are shared and attend within hash buckets");
  add_attention<Linformer>(types, entries, "linformer",
                           "Linformer: keys and values projected along the sequence; not causal");
  add_attention<RelativeBuckets>(types, entries, "relative_buckets",
                                 "T5: softmax attention with a learned bias for each bucket of distances");
  add_attention<Disentangled>(types, entries, "disentangled",
                              "DeBERTa: contents and relative positions with vectors of their own; not causal");
}

void add_image_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries) {
  add_attention<SpatialReduction>(types, entries, "spatial_reduction",
                                  "PVT and PVTv2: keys and values are spatially reduced");
  add_attention<ShiftedWindow>(types, entries, "shifted_window",
                               "Swin: attention inside windows, with a relative position bias");
}

}  // namespace mnemo::attention
