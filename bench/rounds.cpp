#include "bench/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace mnemo::bench {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Rounds rounds_of(const std::vector<double>& values) {
  return {median(values), *std::min_element(values.begin(), values.end()),
          *std::max_element(values.begin(), values.end())};
}

Rounds share_of(double bound, const Rounds& seconds) {
  return {bound / seconds.median, bound / seconds.most, bound / seconds.least};
}

base::Node as_node(const Rounds& rounds) {
  return base::Node::table({{"median", rounds.median}, {"least", rounds.least}, {"most", rounds.most}});
}

std::string range_text(const std::optional<Rounds>& rounds) {
  return rounds ? fmt::format("{:.2f} ({:.2f}-{:.2f})", rounds->median, rounds->least, rounds->most) : std::string();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<double> seconds_of(int64_t count, const std::function<void()>& call) {
  std::vector<double> seconds;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    seconds.push_back(seconds_since(begin));
  }
  return seconds;
}

double fastest_of(int64_t count, const std::function<void()>& call) {
  const std::vector<double> seconds = seconds_of(count, call);
  return *std::min_element(seconds.begin(), seconds.end());
}

std::string kind_of_processor(std::string_view features) {
  const auto has = [&](std::string_view feature) { return features.find(feature) != features.npos; };
  return has("amx_int8") ? "amx" : has("avx512_vnni") ? "avx512" : "avx2";
}

Bars::Bars(const std::string& path, const std::string& kind) : bars_(base::read_config_file(path)), kind_(kind) {}

std::optional<double> Bars::find(const std::string& table, const std::string& key) const {
  for (const std::string& prefix : {fmt::format("on.{}.", kind_), std::string()}) {
    const base::Node* section = &bars_;
    std::istringstream names(prefix + table);
    for (std::string name; section != nullptr && std::getline(names, name, '.');) section = section->find(name);
    const base::Node* bar = section == nullptr ? nullptr : section->find(key);
    if (bar != nullptr) return bar->as_double();
  }
  return std::nullopt;
}

void Bars::at_least(const std::string& table, const std::string& key, double value, const std::string& what) {
  const std::optional<double> bar = find(table, key);
  if (bar && !(value >= *bar))
    missed_.push_back(fmt::format("{}: {:.4g}, expected at least {:.4g}", what, value, *bar));
}

void Bars::at_most(const std::string& table, const std::string& key, double value, const std::string& what) {
  const std::optional<double> bar = find(table, key);
  if (bar && !(value <= *bar)) missed_.push_back(fmt::format("{}: {:.4g}, expected at most {:.4g}", what, value, *bar));
}

}  // namespace mnemo::bench
