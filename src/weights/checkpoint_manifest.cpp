#include "weights/checkpoint_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"

namespace mnemo::weights {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "mnemo-checkpoint/1";
constexpr std::string_view kStepPrefix = "step-";

// JSON has no NaN and no infinity; a run that diverged still has metrics worth keeping.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  base::require(text == "inf" || text == "-inf", "a metric is '{}'", base::printable(text));
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

CheckpointInfo from_json(const Json& json) {
  const std::string format = json.at("format").get<std::string>();
  base::require(format == kFormat, "format is '{}', expected '{}'", base::printable(format), kFormat);
  CheckpointInfo info;
  info.step = json.at("step").get<int64_t>();
  info.best = json.at("best").get<bool>();
  for (const auto& [name, value] : json.at("metrics").items()) info.metrics[name] = number(value);
  for (const Json& entry : json.at("files")) {
    CheckpointFile file;
    file.name = entry.at("name").get<std::string>();
    base::require(base::is_plain_name(file.name) && file.name != kManifestName, "'{}' is no plain file name", base::printable(file.name));
    base::require(entry.at("size").is_number_unsigned(), "the size of '{}' is no non-negative integer", file.name);
    file.size = entry.at("size").get<uint64_t>();
    file.sha256 = entry.at("sha256").get<std::string>();
    info.files.push_back(std::move(file));
  }
  return info;
}

}  // namespace

std::string format_manifest(const CheckpointInfo& info) {
  Json json = {{"format", kFormat}, {"step", info.step}, {"best", info.best}, {"metrics", Json::object()}, {"files", Json::array()}};
  for (const auto& [name, value] : info.metrics) json["metrics"][name] = number(value);
  for (const CheckpointFile& file : info.files) json["files"].push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  return json.dump(2) + "\n";
}

CheckpointInfo parse_manifest(std::string_view text, const std::string& path) {
  try {
    CheckpointInfo info = from_json(Json::parse(text));
    info.path = path;
    return info;
  } catch (const Json::exception& error) {
    base::input_error("{}/{}: {}", base::printable(path, 400), kManifestName, base::printable(error.what(), 200));
  } catch (const base::InputError& error) {
    base::input_error("{}/{}: {}", base::printable(path, 400), kManifestName, error.what());
  }
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

int64_t checkpoint_step(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return -1;
  const std::string_view digits = name.substr(kStepPrefix.size());
  const bool all_digits = digits.size() >= 8 && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  int64_t step = -1;
  if (!all_digits || std::from_chars(digits.data(), digits.data() + digits.size(), step).ec != std::errc()) return -1;
  return step;
}

}  // namespace mnemo::weights
