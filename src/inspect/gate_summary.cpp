#include "inspect/gate_summary.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>

#include "base/json_value.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

page::Table gate_cells(const std::vector<GateSpread>& gates) {
  page::Table cells{{"layer", "gate", "mean"}, {}};
  for (const double quantile : kGateQuantiles) cells.header.push_back(fmt::format("{:.0f} %", 100 * quantile));
  for (const GateSpread& gate : gates) {
    std::vector<std::string> row = {std::to_string(gate.layer), gate.gate, fmt::format("{:.3f}", gate.mean)};
    for (const double value : gate.quantiles) row.push_back(fmt::format("{:.3f}", value));
    cells.rows.push_back(std::move(row));
  }
  return cells;
}

}  // namespace

GateSpread spread_of(int64_t layer, const core::GateValues& gate) {
  const at::Tensor values = gate.values.detach().to(at::kDouble).flatten();
  const at::Tensor sorted = std::get<0>(values.sort());
  GateSpread spread{layer, gate.name, values.mean().item<double>(), {}};
  for (const double quantile : kGateQuantiles) {
    spread.quantiles.push_back(sorted[std::llround(quantile * static_cast<double>(sorted.numel() - 1))].item<double>());
  }
  return spread;
}

std::string to_text(const std::vector<GateSpread>& gates) {
  return gates.empty()
             ? std::string()
             : "Gates of the GRC update: mean, and quantiles of all values\n" + page::text_of(gate_cells(gates));
}

std::string to_html(const std::vector<GateSpread>& gates) {
  return gates.empty() ? std::string()
                       : "<h3>Gates of the GRC update</h3>\n<p>Mean, and quantiles of all values.</p>\n" +
                             page::html_of(gate_cells(gates));
}

base::Node to_node(const std::vector<GateSpread>& gates) {
  base::Node nodes = base::Node::array();
  for (const GateSpread& gate : gates) {
    base::Node quantiles = base::Node::table();
    for (size_t i = 0; i < gate.quantiles.size(); ++i)
      quantiles.set(fmt::format("{:.2f}", kGateQuantiles[i]), base::rounded(gate.quantiles[i]));
    nodes.push_back(base::Node::table(
        {{"layer", gate.layer}, {"gate", gate.gate}, {"mean", base::rounded(gate.mean)}, {"quantiles", quantiles}}));
  }
  return nodes;
}

}  // namespace mnemo::inspect
