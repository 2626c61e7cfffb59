#include "weights/checkpoint_manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"

namespace mnemo::weights {
namespace {

using base::Node;

constexpr const char* kFormat = "mnemo-checkpoint/1";

// JSON has neither NaN nor infinity, but the metrics of a diverged run are worth keeping.
Node number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number(const std::string& name, const Node& value) {
  if (!value.is_string()) return value.as_double();
  const std::string& text = value.as_string();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  base::require(text == "inf" || text == "-inf",
                "{}: the metric '{}' is '{}', expected a number, \"nan\", \"inf\" or \"-inf\"", value.where(),
                base::printable(name), base::printable(text));
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

}  // namespace

std::string format_manifest(const CheckpointInfo& info) {
  Node metrics = Node::table(), files = Node::array();
  for (const auto& [name, value] : info.metrics) metrics.set(name, number(value));
  for (const CheckpointFile& file : info.files) {
    files.push_back(Node::table({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}}));
  }
  const Node manifest = Node::table(
      {{"format", kFormat}, {"step", info.step}, {"best", info.best}, {"metrics", metrics}, {"files", files}});
  const std::string text = base::to_json(manifest) + "\n";
  base::require(text.size() <= kManifestLimits.max_bytes,
                "{}/{}: would be {} bytes for {} files and {} metrics, expected at most {}",
                base::printable(info.path, 400), kManifestName, text.size(), info.files.size(), info.metrics.size(),
                kManifestLimits.max_bytes);
  return text;
}

CheckpointInfo parse_manifest(std::string_view text, const std::string& path) {
  const Node manifest = base::parse_json(text, base::printable(base::join_path(path, kManifestName), 400),
                                         kManifestLimits);
  const std::string& format = manifest.at("format").as_string();
  base::require(format == kFormat, "{}: format is '{}', expected '{}'", manifest.at("format").where(),
                base::printable(format), kFormat);
  CheckpointInfo info;
  info.path = path;
  info.step = manifest.at("step").as_int();
  info.best = manifest.at("best").as_bool();
  for (const auto& [name, value] : manifest.at("metrics").members()) info.metrics[name] = number(name, value);
  for (const Node& entry : manifest.at("files").items()) {
    const std::string& name = entry.at("name").as_string();
    base::require(base::is_plain_name(name) && name != kManifestName, "{}: '{}' is not a plain file name",
                  entry.where(), base::printable(name));
    const int64_t size = entry.at("size").as_int();
    base::require(size >= 0, "{}: the size of '{}' is {}, expected 0 or more", entry.where(), base::printable(name),
                  size);
    info.files.push_back({name, static_cast<uint64_t>(size), entry.at("sha256").as_string()});
  }
  return info;
}

}  // namespace mnemo::weights
