#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/option_poly.h"
#include "base/registry.h"
#include "tasks/task_spec.h"

namespace mnemo::tasks {

/// One entry of the registry. A type's class has `Options`, and optionally the static functions `made` and `found_in`;
/// the options may have `from_earlier`.
struct TaskType {
  /// Creates the type from a complete [data] table. Throws InputError for incompatible options.
  std::function<std::unique_ptr<const TaskSpec>(const base::Node& table)> read;
  /// Names of synthetic data ("copy"), each with the [data] table it stands for.
  std::vector<std::pair<std::string, base::Node>> made = {};
  /// The [data] table for an existing path, or nothing if the path is not of this type. May be empty.
  std::function<std::optional<base::Node>(const std::string& path)> found_in = {};
  /// Gives a [data] table that an earlier version wrote the keys whose default has changed. May be empty.
  std::function<void(base::Node& table)> from_earlier = {};
};

/// Every type of [data], by name.
struct TaskTypes {
  base::OptionTypes options{"data"};
  base::Registry<TaskType> entries{"data"};
  std::string default_type;  ///< used for a [data] table without a type

  /// Filled on first use; constant afterwards.
  static const TaskTypes& all();
};

/// The specification for a complete [data] table.
std::unique_ptr<const TaskSpec> task_spec(const base::Node& table);

/// Names of synthetic data, in the order of the registry.
std::vector<std::string> made_words();

/// The [data] table for a name in made_words() or the path of a file or folder; nothing if it is neither. What no other
/// type recognises is of the default type. type: of a path only of this one; of a path that it does not recognise the
/// table says data.train alone. Throws InputError for a path with content of an unknown kind, and for an unknown type.
std::optional<base::Node> find_data(const std::string& source, const std::string& type = {});

}  // namespace mnemo::tasks
