#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/node.h"

namespace mnemo::data {

/// One file of a prepared data set.
struct PreparedPart {
  std::string name;  ///< "train", "valid" or "test"
  std::string path;
  int64_t bytes = 0;
  int64_t documents = 0;
  int64_t tokens = 0;  ///< in the unit of the data set
};

/// A data set ready for training: data.toml, a recipe's [data] that a recipe can use as its `base`, and the files of
/// its parts, if any were written.
struct Prepared {
  std::string recipe;  ///< path of data.toml
  std::vector<PreparedPart> parts = {};
};

/// For the terminal.
std::string to_text(const Prepared& prepared);
base::Node to_node(const Prepared& prepared);

/// A data set that `mnemo data prepare` supports. Each has its own file in this folder and is registered in
/// registry.cpp.
struct DataSet {
  std::string what;               ///< description in one line
  std::string from;               ///< where to download it
  std::string data_type = {};     ///< the type of [data] whose keys may be set; empty: no keys
  bool path_is_optional = false;  ///< without a path the data is generated
  /// The keys that the set itself decides for that path: `keys` below has them, and they may not be set.
  std::function<base::Node(const std::string& path)> own_keys = {};
  /// Reads `path`, a file or folder, checks it and writes the data set to the folder `out`; `keys` is a complete [data]
  /// table of data_type, or null if data_type is empty. Throws InputError naming the file, what was expected and what
  /// was found.
  std::function<Prepared(const std::string& path, const std::string& out, const base::Node& keys)> prepare;
};

}  // namespace mnemo::data
