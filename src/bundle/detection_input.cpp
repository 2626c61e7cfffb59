#include "bundle/detection_input.h"

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/published_config.h"

namespace mnemo::bundle {
namespace {

data::DetectionInput said_by_config(const base::Node& config, const weights::ForeignDetector& format) {
  base::Node input = format.input(config);
  input.set_place_deep(config.place());
  return base::read_options<data::DetectionInput>(input);
}

}  // namespace

std::optional<data::DetectionInput> find_detection_input(const std::string& folder) {
  const std::string path = base::join_path(folder, data::DetectionInput::kFile);
  if (base::path_exists(path))
    return base::read_options<data::DetectionInput>(base::parse_json(base::read_file(path, uint64_t{1} << 20), path));
  const PublishedConfig published = read_published(folder);
  if (published.format == nullptr || !published.format->detector) return std::nullopt;
  return said_by_config(published.config, *published.format->detector);
}

data::DetectionInput read_detection_input(const std::string& folder) {
  const std::optional<data::DetectionInput> input = find_detection_input(folder);
  base::require(input.has_value(),
                "{}: missing; it says how images become the detector's input: {{\"shorter\": 800, \"longest\": 1333, "
                "\"mean\": [0.485, 0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}}",
                base::join_path(folder, data::DetectionInput::kFile));
  return *input;
}

void add_detection_input(base::Node& config, const weights::ForeignDetector& format, const std::string& folder,
                         const std::string& who) {
  const base::Node input = base::write_options(read_detection_input(folder));
  format.add_input(config, input);
  const base::Node said = base::write_options(said_by_config(config, format));
  for (const auto& [key, value] : input.members())
    base::require(value == said.at(key), "{}: {}: '{}': the format can only say {}, found {}", who,
                  data::DetectionInput::kFile, key, base::to_json(said.at(key), -1), base::to_json(value, -1));
}

bool says_detection_input(const base::Node& config, const weights::ForeignDetector& format, const std::string& folder) {
  return said_by_config(config, format).text() == read_detection_input(folder).text();
}

}  // namespace mnemo::bundle
