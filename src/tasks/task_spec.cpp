#include "tasks/task_spec.h"

#include "base/error.h"

namespace mnemo::tasks {

std::string TaskSpec::title() const { return fmt::format("[data] of type \"{}\"", type()); }

data::ImageOptions TaskSpec::images(const models::ModelOptions&) const {
  base::input_error("{} has no images", title());
}

std::optional<double> TaskSpec::chance(const models::ModelOptions&) const { return std::nullopt; }

}  // namespace mnemo::tasks
