#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "core/inspection.h"

namespace mnemo::inspect {

/// The distribution of one gate's values in one layer.
struct GateSpread {
  int64_t layer = 0;
  std::string gate;
  double mean = 0;
  std::vector<double> quantiles;  ///< at kGateQuantiles
};
inline constexpr double kGateQuantiles[] = {0.05, 0.25, 0.5, 0.75, 0.95};

GateSpread spread_of(int64_t layer, const core::GateValues& gate);

/// For a model with GRC; empty without gates.
std::string to_text(const std::vector<GateSpread>& gates);
std::string to_html(const std::vector<GateSpread>& gates);
base::Node to_node(const std::vector<GateSpread>& gates);

}  // namespace mnemo::inspect
