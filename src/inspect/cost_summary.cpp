#include "inspect/cost_summary.h"

#include <fmt/format.h>

#include "base/html.h"
#include "base/text_format.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

using inspect::ModelCost;
using inspect::PartCost;

std::string headline(const ModelCost& cost) {
  if (!cost.image_size.empty()) {
    return fmt::format(
        "{} image{} of {} x {}; forward pass, only matrix products are counted (a multiply-add is two FLOPs):",
        cost.batch, cost.batch == 1 ? "" : "s", cost.image_size[0], cost.image_size[1]);
  }
  return fmt::format("One segment of {} in each of {}, after {}; forward pass, only matrix products are counted:",
                     base::counted(cost.segment_size, "token"), base::counted(cost.batch, "sequence"),
                     base::counted(cost.position, "token"));
}

using Rows = std::vector<std::vector<std::string>>;

std::vector<std::string> header_of(const ModelCost& cost) {
  const bool images = !cost.image_size.empty();
  return {"part",         "FLOPs",
          "share",        images ? "FLOPs/image" : "FLOPs/token",
          "parameters",   images ? "state B/image" : "state B/seq",
          "state B/model"};
}

std::vector<std::string> row_of(const PartCost& part, const ModelCost& cost) {
  const double all = static_cast<double>(std::max<int64_t>(1, cost.total.flops));
  return {part.part,
          base::grouped(part.flops),
          fmt::format("{:.1f} %", 100 * static_cast<double>(part.flops) / all),
          base::grouped(part.flops / (cost.batch * (cost.image_size.empty() ? cost.segment_size : 1))),
          base::grouped(part.parameters),
          base::grouped(part.state_bytes),
          base::grouped(part.model_state_bytes)};
}

Rows rows_of(const ModelCost& cost) {
  Rows rows;
  for (const PartCost& part : cost.parts) rows.push_back(row_of(part, cost));
  rows.push_back(row_of(cost.total, cost));
  for (const PartCost& memory : cost.added) {
    rows.push_back(row_of(memory, cost));
    rows.back()[0] = "added by " + memory.part;
  }
  return rows;
}

base::Node part_node(const PartCost& part) {
  return base::Node::table({{"part", part.part},
                            {"flops", part.flops},
                            {"parameters", part.parameters},
                            {"state_bytes", part.state_bytes},
                            {"model_state_bytes", part.model_state_bytes}});
}

base::Node list_of(const std::vector<PartCost>& parts) {
  base::Node node = base::Node::array();
  for (const PartCost& part : parts) node.push_back(part_node(part));
  return node;
}

}  // namespace

std::string to_text(const ModelCost& cost) {
  return headline(cost) + "\n" + page::text_of({header_of(cost), rows_of(cost), 1});
}

base::Node to_node(const ModelCost& cost) {
  base::Node node = base::Node::table({{"batch", cost.batch}});
  if (cost.image_size.empty()) {
    node.set("segment_size", cost.segment_size);
    node.set("position", cost.position);
  } else {
    node.set("image_size", base::Node::array({cost.image_size[0], cost.image_size[1]}));
  }
  node.set("parts", list_of(cost.parts));
  node.set("all", part_node(cost.total));
  node.set("added", list_of(cost.added));
  return node;
}

std::string to_html(const ModelCost& cost) {
  return fmt::format("<p>{}</p>\n{}", base::html_escape(headline(cost)),
                     page::html_of({header_of(cost), rows_of(cost), 1}));
}

}  // namespace mnemo::inspect
