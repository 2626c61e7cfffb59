#include "train/run_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file_io.h"
#include "core/scalar.h"

namespace mnemo::train {
namespace {

/// JSON has no NaN and no infinity.
base::Node number(double value) { return std::isfinite(value) ? base::Node(value) : base::Node(); }

/// The lines of a log up to a step.
std::string lines_up_to(const std::string& log, int64_t step) {
  std::string kept;
  for (size_t begin = 0; begin < log.size();) {
    const size_t end = log.find('\n', begin);
    if (end == std::string::npos) break;  // torn
    const std::string_view line = std::string_view(log).substr(begin, end - begin);
    begin = end + 1;
    try {
      const base::Node object = base::parse_json(line, "log.jsonl");
      const base::Node* found = object.find("step");
      if (found != nullptr && found->is_int() && found->as_int() <= step) kept.append(line).push_back('\n');
    } catch (const base::InputError&) {
      continue;  // a line that is no JSON is no measurement either
    }
  }
  return kept;
}

}  // namespace

RunLog::RunLog(const std::string& folder, int64_t step, bool tensorboard)
    : path_(base::join_path(folder, "log.jsonl")) {
  base::make_folders(folder);
  const bool goes_on = step > 0 && base::path_exists(path_);
  base::write_file_atomic(path_, goes_on ? lines_up_to(base::read_file(path_), step) : "");
  if (tensorboard) tensorboard_ = std::make_unique<TensorBoard>(folder, step);
  file_ = std::fopen(path_.c_str(), "ab");
  base::require(file_ != nullptr, "{}: cannot be opened: {}", path_, std::strerror(errno));
}

RunLog::~RunLog() {
  if (file_ != nullptr) std::fclose(file_);
}

void RunLog::add(const LossPoint& point, double epoch) {
  base::Node object = base::Node::table({{"step", point.step}, {"tokens", point.tokens}});
  object.set("seconds", number(point.seconds));
  object.set("loss", number(point.loss));
  object.set("lr", number(point.lr));
  object.set("gradient_norm", number(point.gradient_norm));
  object.set("epoch", number(epoch));
  std::vector<std::pair<std::string, double>> curves = {{"train/loss", point.loss},
                                                        {"train/lr", point.lr},
                                                        {"train/gradient_norm", point.gradient_norm},
                                                        {"train/epoch", epoch}};
  base::Node scalars = base::Node::table();
  for (const core::Scalar& scalar : point.scalars) {
    base::Node values = base::Node::array();
    for (size_t i = 0; i < scalar.values.size(); ++i) {
      values.push_back(number(scalar.values[i]));
      curves.emplace_back(fmt::format("{}/{}", scalar.name, i), scalar.values[i]);
    }
    scalars.set(scalar.name, values);
  }
  if (!point.scalars.empty()) object.set("gauges", scalars);
  write_line(object);
  if (tensorboard_) tensorboard_->scalars(point.step, curves);
}

void RunLog::add(const EvaluationPoint& point, const std::string& metric) {
  base::Node values = base::Node::table();
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& [name, value] : point.evaluation.metrics) {
    values.set(name, number(value));
    scalars.emplace_back("valid/" + name, value);
  }
  base::Node object = base::Node::table({{"step", point.step}, {"tokens", point.tokens}});
  object.set("seconds", number(point.seconds));
  object.set("metric", metric);
  object.set("valid", values);
  write_line(object);
  if (tensorboard_) tensorboard_->scalars(point.step, scalars);
}

void RunLog::write_line(const base::Node& object) {
  const std::string line = base::to_json(object, -1) + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file_) == line.size() && std::fflush(file_) == 0;
  if (!written) base::system_failure(path_, "cannot be written", errno);
}

}  // namespace mnemo::train
