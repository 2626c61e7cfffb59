#include "memory/abc_control/control.h"

#include <functional>

#include "core/decode.h"
#include "memory/abc_control/assigned.h"
#include "memory/abc_control/luna.h"
#include "memory/abc_control/mlp.h"
#include "memory/abc_control/position.h"
#include "memory/abc_control/queues.h"

namespace mnemo::memory {
namespace {

struct ControlEntry {
  bool learns;
  std::function<std::unique_ptr<AbcControl>(const base::TypedOptions&, const AbcControlBuild&)> make;
  std::function<std::optional<AbcPlaces>(const base::TypedOptions&, int64_t num_slots)> row_limit;
};

/// Registers every control.
struct Controls {
  base::OptionTypes types{"control"};
  base::Registry<ControlEntry> entries{"control"};

  template <class C>
  void add(const char* name, bool learns, const char* meaning) {
    types.add<typename C::Options>(name, meaning);
    ControlEntry entry{learns,
                       [](const base::TypedOptions& options, const AbcControlBuild& build) {
                         return std::make_unique<C>(options.as<typename C::Options>(), build);
                       },
                       [](const base::TypedOptions&, int64_t) { return std::nullopt; }};
    if constexpr (requires(const typename C::Options& options) { C::row_limit(options, int64_t{}); })
      entry.row_limit = [](const base::TypedOptions& options, int64_t num_slots) {
        return C::row_limit(options.as<typename C::Options>(), num_slots);
      };
    entries.add(name, std::move(entry));
  }
};

const Controls& controls() {
  static const Controls all = [] {
    Controls made;
    made.add<AbcMlpControl>("mlp", true, "a linear map of the layer's input gives the weights of each token");
    made.add<AbcRandomControl>("random", false, "ABC_RD: each token goes to one random slot");
    made.add<AbcLinformerControl>("linformer", true, "a column of a learned table for each position");
    made.add<AbcClusteringControl>("clustering", false, "slots are means of clusters");
    made.add<AbcWindowControl>("window", false, "the last tokens, first in first out");
    made.add<AbcDilatedControl>("dilated", false, "every second one of the last tokens");
    made.add<AbcLocalToGlobalControl>("local_to_global", false, "only the tokens at chosen positions");
    made.add<AbcCompressiveControl>("compressive", false, "means of consecutive tokens");
    made.add<AbcLunaControl>("luna", true, "SW/LUNA: the slots of the layer below attend to the tokens; not causal");
    made.add<AbcIdentityControl>("identity", false, "one slot per token");
    return made;
  }();
  return all;
}

}  // namespace

std::unique_ptr<core::DecodeAttention> AbcControl::decoder(const core::DecodeBuild&, const AbcMaps&) const {
  return nullptr;
}

const base::PolyType& abc_control_types() { return controls().types; }

bool abc_control_learns(const std::string& type) { return controls().entries.find(type).learns; }

std::optional<AbcPlaces> abc_row_limit(const base::TypedOptions& control, int64_t num_slots) {
  return controls().entries.find(control.type()).row_limit(control, num_slots);
}

std::unique_ptr<AbcControl> make_abc_control(const base::TypedOptions& options, const AbcControlBuild& build) {
  return controls().entries.find(options.type()).make(options, build);
}

}  // namespace mnemo::memory
