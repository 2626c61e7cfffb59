#include "data/part.h"

#include "base/error.h"

namespace mnemo::data {

Part part_of(std::string_view name, std::string_view where) {
  if (name == "train") return Part::train;
  if (name == "valid") return Part::valid;
  base::require(name == "test", "{}: expected train, valid or test, found '{}'", where, name);
  return Part::test;
}

}  // namespace mnemo::data
