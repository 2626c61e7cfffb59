#include "train/history.h"

#include <torch/types.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "core/scalar.h"

namespace mnemo::train {
namespace {

constexpr int64_t kLossColumns = 5;
constexpr int64_t kEvaluationColumns = 2;  // and one a metric

at::Tensor table(const std::vector<double>& values, int64_t columns) {
  base::ensure(static_cast<int64_t>(values.size()) % columns == 0, "{} values in rows of {}", values.size(), columns);
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size()) / columns, columns}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

/// The values of a float64 tensor [n,columns], row after row.
std::vector<double> values_of(const weights::TensorFile& file, const std::string& name, int64_t columns,
                              const std::string& where) {
  const at::Tensor& tensor = file.at(name, where);
  base::require(tensor.scalar_type() == at::kDouble && tensor.dim() == 2 && tensor.size(1) == columns,
                "{}: \"{}\": expected float64 [n,{}], found {} {}", where, name, columns,
                at::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
  const double* data = tensor.const_data_ptr<double>();
  return {data, data + tensor.numel()};
}

int64_t count_of(double value, const std::string& where) {
  base::require(value >= 0 && value <= 9007199254740992.0, "{}: expected a count, found {}", where, value);
  return static_cast<int64_t>(value);
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

int64_t scalar_width(const std::string& name, const std::string& where) {
  const size_t colon = name.rfind(':');
  int64_t count = 0;
  const char *begin = colon == std::string::npos ? nullptr : name.data() + colon + 1, *end = name.data() + name.size();
  const bool good = begin != nullptr && std::from_chars(begin, end, count).ptr == end && count > 0 && count <= 1 << 16;
  base::require(good, "{}: expected gauges as NAME:COUNT in its metadata, found '{}'", where, name);
  return count;
}

/// "a:2,b:1" and a row of their values -> the scalars.
std::vector<core::Scalar> scalars_of(const std::vector<std::string>& names, const double* row,
                                     const std::string& where) {
  std::vector<core::Scalar> scalars;
  for (const std::string& name : names) {
    const size_t colon = name.rfind(':');
    const int64_t count = scalar_width(name, where);
    scalars.push_back({name.substr(0, colon), {row, row + count}});
    row += count;
  }
  return scalars;
}

/// Gives a point every metric of another.
void complete(EvaluationPoint& point, const EvaluationPoint& other) {
  auto& metrics = point.evaluation.metrics;
  for (const auto& [name, value] : other.evaluation.metrics) {
    const bool has = std::any_of(metrics.begin(), metrics.end(),
                                 [&, &wanted = name](const auto& own) { return own.first == wanted; });
    if (!has) metrics.emplace_back(name, std::nan(""));
  }
}

}  // namespace

void History::add(EvaluationPoint point) {
  if (!evaluations.empty()) complete(point, evaluations.front());
  for (EvaluationPoint& before : evaluations) complete(before, point);
  evaluations.push_back(std::move(point));
}

weights::NamedTensors History::save(weights::Metadata& metadata) const {
  std::vector<double> rows;
  for (const LossPoint& point : losses) {
    rows.insert(rows.end(), {static_cast<double>(point.step), static_cast<double>(point.tokens), point.loss, point.lr,
                             point.gradient_norm});
  }
  std::vector<double> measured;
  std::string names;
  for (const EvaluationPoint& point : evaluations) {
    measured.insert(measured.end(), {static_cast<double>(point.step), static_cast<double>(point.tokens)});
    for (const auto& [name, value] : evaluations.front().evaluation.metrics) {
      if (&point == &evaluations.front()) names += (names.empty() ? "" : ",") + name;
      measured.push_back(point.evaluation.at(name));
    }
  }
  metadata["metrics"] = names;
  const auto columns = kEvaluationColumns + static_cast<int64_t>(split(names).size());
  weights::NamedTensors tensors = {{"losses", table(rows, kLossColumns)}, {"evaluations", table(measured, columns)}};
  if (!losses.empty() && !losses.front().scalars.empty()) {
    std::string scalars;
    int64_t width = 0;
    for (const core::Scalar& scalar : losses.front().scalars) {
      scalars += fmt::format("{}{}:{}", scalars.empty() ? "" : ",", scalar.name, scalar.values.size());
      width += static_cast<int64_t>(scalar.values.size());
    }
    std::vector<double> values;
    for (const LossPoint& point : losses) {
      for (const core::Scalar& scalar : point.scalars)
        values.insert(values.end(), scalar.values.begin(), scalar.values.end());
    }
    metadata["gauges"] = scalars;
    tensors.emplace_back("gauges", table(values, width));
  }
  return tensors;
}

weights::NamedTensors History::save_seconds() const {
  std::vector<double> of_losses, of_evaluations;
  for (const LossPoint& point : losses) of_losses.push_back(point.seconds);
  for (const EvaluationPoint& point : evaluations) of_evaluations.push_back(point.seconds);
  return {{"loss_seconds", table(of_losses, 1)}, {"evaluation_seconds", table(of_evaluations, 1)}};
}

History History::load(const weights::TensorFile& file, const weights::TensorFile& seconds, const std::string& where) {
  const auto metadata = file.metadata.find("metrics");
  base::require(metadata != file.metadata.end(), "{}: expected the names of the metrics in its metadata, found none",
                where);
  const auto names = split(metadata->second);
  const auto columns = kEvaluationColumns + static_cast<int64_t>(names.size());
  const auto losses = values_of(file, "losses", kLossColumns, where);
  const auto measured = values_of(file, "evaluations", columns, where);
  const auto of_losses = values_of(seconds, "loss_seconds", 1, where);
  const auto of_evaluations = values_of(seconds, "evaluation_seconds", 1, where);
  base::require(of_losses.size() * kLossColumns == losses.size() &&
                    of_evaluations.size() * static_cast<size_t>(columns) == measured.size(),
                "{}: expected a time for each of the {} points, found {} times", where,
                losses.size() / kLossColumns + measured.size() / static_cast<size_t>(columns),
                of_losses.size() + of_evaluations.size());
  const auto scalars = file.metadata.find("gauges");
  const std::vector<std::string> scalar_names = scalars == file.metadata.end() ? std::vector<std::string>{}
                                                                               : split(scalars->second);
  int64_t width = 0;
  for (const std::string& name : scalar_names) width += scalar_width(name, where);
  const std::vector<double> numbers = scalar_names.empty() ? std::vector<double>{}
                                                           : values_of(file, "gauges", width, where);
  base::require(numbers.size() == of_losses.size() * static_cast<size_t>(width),
                "{}: expected gauges for {} points, found {}", where, of_losses.size(),
                width == 0 ? 0 : numbers.size() / static_cast<size_t>(width));
  History history;
  for (size_t i = 0; i < of_losses.size(); ++i) {
    const double* row = losses.data() + i * kLossColumns;
    history.losses.push_back({count_of(row[0], where), count_of(row[1], where), of_losses[i], row[2], row[3], row[4],
                              scalars_of(scalar_names, numbers.data() + i * static_cast<size_t>(width), where)});
  }
  for (size_t i = 0; i < of_evaluations.size(); ++i) {
    const double* row = measured.data() + i * static_cast<size_t>(columns);
    EvaluationPoint point{count_of(row[0], where), count_of(row[1], where), of_evaluations[i], {}};
    for (size_t m = 0; m < names.size(); ++m)
      point.evaluation.metrics.emplace_back(names[m], row[kEvaluationColumns + m]);
    history.evaluations.push_back(std::move(point));
  }
  return history;
}

}  // namespace mnemo::train
