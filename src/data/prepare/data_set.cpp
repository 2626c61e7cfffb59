#include "data/prepare/data_set.h"

#include <fmt/format.h>

#include "base/output.h"
#include "base/text_table.h"

namespace mnemo::data {

std::string to_text(const Prepared& prepared) {
  const std::string recipe = fmt::format("[data] of a recipe: {}\n", prepared.recipe);
  if (prepared.parts.empty()) return recipe;
  using Align = base::TextTable::Align;
  base::TextTable table({"part", "bytes", "documents", "tokens", "file"},
                        {Align::left, Align::right, Align::right, Align::right, Align::left});
  for (const PreparedPart& part : prepared.parts) {
    table.add_row({part.name, std::to_string(part.bytes), std::to_string(part.documents), std::to_string(part.tokens),
                   part.path});
  }
  return table.text(base::output_columns()) + "\n" + recipe;
}

base::Node to_node(const Prepared& prepared) {
  base::Node node = base::Node::table({{"recipe", prepared.recipe}});
  if (prepared.parts.empty()) return node;
  base::Node parts = base::Node::array();
  for (const PreparedPart& part : prepared.parts) {
    parts.push_back(base::Node::table({{"name", part.name},
                                       {"path", part.path},
                                       {"bytes", part.bytes},
                                       {"documents", part.documents},
                                       {"tokens", part.tokens}}));
  }
  node.set("parts", std::move(parts));
  return node;
}

}  // namespace mnemo::data
