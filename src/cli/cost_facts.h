#pragma once

#include <string>

#include "base/node.h"
#include "models/cost.h"

namespace mnemo::cli {

std::string to_text(const models::ModelCost& cost);
base::Node to_node(const models::ModelCost& cost);
std::string to_html(const models::ModelCost& cost);

}  // namespace mnemo::cli
