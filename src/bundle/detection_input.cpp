#include "bundle/detection_input.h"

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/published_config.h"

namespace mnemo::bundle {

std::optional<data::DetectionInput> find_detection_input(const std::string& folder) {
  const std::string path = base::join_path(folder, data::DetectionInput::kFile);
  if (base::path_exists(path))
    return base::read_options<data::DetectionInput>(base::parse_json(base::read_file(path, uint64_t{1} << 20), path));
  const PublishedConfig published = read_published(folder);
  if (published.format == nullptr || !published.format->detection_input) return std::nullopt;
  return base::read_options<data::DetectionInput>(published.format->detection_input(published.config));
}

data::DetectionInput read_detection_input(const std::string& folder) {
  const std::optional<data::DetectionInput> input = find_detection_input(folder);
  base::require(input.has_value(),
                "{}: missing; it says how images become the detector's input: {{\"shorter\": 800, \"longest\": 1333, "
                "\"mean\": [0.485, 0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}}",
                base::join_path(folder, data::DetectionInput::kFile));
  return *input;
}

}  // namespace mnemo::bundle
