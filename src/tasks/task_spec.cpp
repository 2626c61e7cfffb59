#include "tasks/task_spec.h"

#include <fmt/ranges.h>

#include <cctype>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "data/text/text_files.h"
#include "models/detection_options.h"
#include "models/options.h"
#include "tasks/registry.h"

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

void TaskSpec::require_data() const {
  constexpr const char* kRemedy = "use --set data.train=PATH, or train's --data PATH";
  const base::Node* train = table_.find("train");
  if (train == nullptr || !train->is_string()) return;
  const std::string& path = train->as_string();
  if (path.empty() && makes_samples()) return;
  base::require(!path.empty(), "data.train: expected data of type \"{}\" ({}), found none; {}", type(),
                TaskTypes::all().options.meaning(type()), kRemedy);
  base::require(base::path_exists(path) || data::is_pattern(path), "data.train: {}: no such file or folder; {}",
                base::printable(path, 400), kRemedy);
}

bool TaskSpec::completes(const models::ModelOptions& model) const { return suits(model); }

std::optional<double> TaskSpec::chance(const models::ModelOptions&) const { return std::nullopt; }

}  // namespace mnemo::tasks
