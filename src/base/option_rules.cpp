#include "base/option_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text_format.h"

namespace mnemo::base {
namespace {

std::string number_text(double value) {
  const bool whole = std::abs(value) <= 0x1p53 && value == std::floor(value);
  return whole ? fmt::format("{}", static_cast<int64_t>(value)) : format_real(value);
}

bool is_number(const Node& node) { return node.is_int() || node.is_real(); }

Rule number_rule(std::string text, std::function<bool(double)> holds) {
  return {std::move(text),
          [holds = std::move(holds)](const Node& node) { return !is_number(node) || holds(node.as_double()); },
          {},
          nullptr};
}

std::string bounds_text(double lo, double hi, bool open_lo, bool open_hi) {
  const bool has_lo = lo != -kInfinity, has_hi = hi != kInfinity;
  const std::string low = open_lo ? fmt::format("more than {}", number_text(lo))
                                  : fmt::format("at least {}", number_text(lo));
  const std::string high = open_hi ? fmt::format("less than {}", number_text(hi))
                                   : fmt::format("at most {}", number_text(hi));
  if (has_lo && has_hi && !open_lo && !open_hi) return fmt::format("{} to {}", number_text(lo), number_text(hi));
  if (has_lo && has_hi) return low + " and " + high;
  return has_lo ? low : has_hi ? high : "";
}

}  // namespace

Rule range(double lo, double hi) {
  return number_rule(bounds_text(lo, hi, false, false), [=](double value) { return lo <= value && value <= hi; });
}

Rule open_range(double lo, double hi) {
  return number_rule(bounds_text(lo, hi, true, true), [=](double value) { return lo < value && value < hi; });
}

Rule half_open_range(double lo, double hi) {
  return number_rule(bounds_text(lo, hi, false, true), [=](double value) { return lo <= value && value < hi; });
}

Rule at_least(double lo) { return range(lo, kInfinity); }

Rule positive() {
  return number_rule("more than 0", [](double value) { return value > 0; });
}

Rule one_of_names(std::vector<std::string> names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(json_string(name));
  auto holds = [names](const Node& node) {
    return !node.is_string() || std::find(names.begin(), names.end(), node.as_string()) != names.end();
  };
  return {fmt::format("{}", fmt::join(shown, " | ")), std::move(holds), std::move(names), nullptr};
}

Rule not_empty() {
  return {"not empty", [](const Node& node) { return !node.is_string() || !node.as_string().empty(); }, {}, nullptr};
}

Rule check(std::string text, std::function<bool(const Node&)> holds) {
  return {std::move(text), std::move(holds), {}, nullptr};
}

Rule poly(const PolyType& types) { return {"", nullptr, {}, &types}; }

}  // namespace mnemo::base
