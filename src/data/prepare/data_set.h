#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/node.h"

namespace mnemo::data {

/// One file that was prepared.
struct PreparedPart {
  std::string name;  ///< "train", "valid" or "test"
  std::string path;
  int64_t bytes = 0;
  int64_t documents = 0;
  int64_t tokens = 0;  ///< of the unit that the data set is read in
};

/// A data set ready to be trained on: data.toml, a recipe's [data] that a recipe may name as its `base`, and its parts
/// beside it where any were written.
struct Prepared {
  std::string recipe;  ///< path of data.toml
  std::vector<PreparedPart> parts = {};
};

/// For a terminal.
std::string to_text(const Prepared& prepared);
base::Node to_node(const Prepared& prepared);

/// A data set that `mnemo data prepare` knows. Each has a file of its own in this folder; registry.cpp names them all.
struct DataSet {
  std::string what;               ///< one line
  std::string from;               ///< where a user gets it
  std::string data_type = {};     ///< the type of [data] whose keys may be set; empty: there are none to set
  bool path_is_optional = false;  ///< without a path the data are made
  /// Reads `path`, a file or folder, checks it and writes the set into the folder `out`; `keys` is a complete [data]
  /// table of data_type, null where that is empty. Throws InputError naming file, what was expected and what was found.
  std::function<Prepared(const std::string& path, const std::string& out, const base::Node& keys)> prepare;
};

}  // namespace mnemo::data
