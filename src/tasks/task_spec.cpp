#include "tasks/task_spec.h"

#include <fmt/ranges.h>

#include <cctype>

#include "base/error.h"
#include "base/printable.h"
#include "models/detection_options.h"
#include "models/options.h"

namespace mnemo::tasks {

std::string MetricInfo::key() const {
  std::string key;
  for (const char c : name) key += c == ' ' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return key;
}

MetricInfo TaskSpec::metric_named(const std::string& key) const {
  const MetricInfo own = metric();
  if (key.empty() || key == own.key()) return own;
  std::vector<std::string> names = {own.key()};
  for (const MetricInfo& one : more_metrics()) {
    if (one.key() == key) return one;
    names.push_back(one.key());
  }
  base::input_error("expected a metric of {} ({}), found {}", title(), fmt::join(names, ", "), base::in_quotes(key));
}

std::string TaskSpec::title() const { return fmt::format("[data] of type \"{}\"", type()); }

data::ImageOptions TaskSpec::images(const models::ModelOptions&) const {
  base::input_error("{} has no images", title());
}

bool TaskSpec::suits(const models::ModelOptions& model) const {
  return model.backbone.input() == input() && models::is_detector(model) == detects();
}

bool TaskSpec::completes(const models::ModelOptions& model) const { return suits(model); }

std::optional<double> TaskSpec::chance(const models::ModelOptions&) const { return std::nullopt; }

}  // namespace mnemo::tasks
