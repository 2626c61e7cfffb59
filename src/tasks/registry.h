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

/// One entry of the registry. A type's class has `Options`, and may have the static functions `made` and `found_in`.
struct TaskType {
  /// The type of a complete [data] table. Throws InputError for options that do not fit together.
  std::function<std::unique_ptr<const TaskSpec>(const base::Node& table)> read;
  /// Words that stand for made data ("copy"), each with the [data] table it means.
  std::vector<std::pair<std::string, base::Node>> made = {};
  /// The [data] table for what lies at a path that exists; nothing where it is none of this type's. May be empty.
  std::function<std::optional<base::Node>(const std::string& path)> found_in = {};
};

/// Every type of [data], by name.
struct TaskTypes {
  base::OptionTypes options{"data"};
  base::Registry<TaskType> entries{"data"};
  std::string default_type;  ///< of a [data] table that names none

  /// Filled on first use; constant afterwards.
  static const TaskTypes& all();
};

/// The task of a complete [data] table.
std::unique_ptr<const TaskSpec> task_spec(const base::Node& table);

/// Words that stand for made data, in the order of the registry.
std::vector<std::string> made_words();

/// The [data] table for a word of made_words() or the path of a file or folder; nothing where that is none of them.
/// Throws InputError for a path whose content is of no known kind.
std::optional<base::Node> find_data(const std::string& source);

}  // namespace mnemo::tasks
