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
  std::function<std::unique_ptr<AbcControl>(const base::Node&, const AbcControlBuild&)> make;
  std::function<std::optional<core::RowLimit>(const base::Node& abc)> row_limit;
};

/// Registers every control.
struct Controls {
  base::OptionTypes types{"control"};
  base::Registry<ControlEntry> entries{"control"};

  template <class C>
  void add(const char* name, bool learns, const char* meaning) {
    types.add<typename C::Options>(name, meaning);
    ControlEntry entry{learns,
                       [](const base::Node& options, const AbcControlBuild& build) {
                         return std::make_unique<C>(base::read_typed_options<typename C::Options>(options), build);
                       },
                       [](const base::Node&) { return std::nullopt; }};
    if constexpr (requires(const base::Node& abc) { C::row_limit(abc); }) entry.row_limit = C::row_limit;
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

std::optional<core::RowLimit> abc_row_limit(const base::Node& abc) {
  return controls().entries.find(abc.at("control").at("type").as_string()).row_limit(abc);
}

std::unique_ptr<AbcControl> make_abc_control(const base::Node& options, const AbcControlBuild& build) {
  return controls().entries.find(options.at("type").as_string()).make(options, build);
}

}  // namespace mnemo::memory
