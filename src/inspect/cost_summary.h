#pragma once

#include <string>

#include "base/node.h"
#include "inspect/cost.h"

namespace mnemo::inspect {

std::string to_text(const inspect::ModelCost& cost);
base::Node to_node(const inspect::ModelCost& cost);
std::string to_html(const inspect::ModelCost& cost);

}  // namespace mnemo::inspect
