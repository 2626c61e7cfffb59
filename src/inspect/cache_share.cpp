#include "inspect/cache_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/html.h"

namespace mnemo::inspect {

std::vector<CacheShare> cache_shares(const std::vector<core::Scalar>& scalars) {
  constexpr std::string_view kStart = "layers.", kEnd = ".sigma_lambda";
  std::vector<CacheShare> shares;
  for (const core::Scalar& scalar : scalars) {
    if (!scalar.name.ends_with(kEnd)) continue;
    shares.push_back({"layer " + scalar.name.substr(kStart.size(), scalar.name.size() - kStart.size() - kEnd.size()),
                      scalar.values});
  }
  return shares;
}

std::string svg_of(const std::vector<CacheShare>& shares) {
  if (shares.empty()) return {};
  constexpr double kBar = 15, kStep = 30, kHeight = 46, kLabel = 74, kGroup = 78;
  size_t heads = 0;
  for (const CacheShare& layer : shares) heads = std::max(heads, layer.heads.size());
  const double width = kLabel + std::max(static_cast<double>(heads) * kStep + 6, 220.0);
  const double height = kGroup * static_cast<double>(shares.size());
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" font-size=\"11\" class=\"soft\">\n",
      width, height);
  for (size_t i = 0; i < shares.size(); ++i) {
    const CacheShare& layer = shares[i];
    const double top = kGroup * static_cast<double>(i) + 14, base_line = top + kHeight;
    svg += fmt::format("<text x=\"0\" y=\"{:.1f}\" font-size=\"12\">{}</text>\n", top + kHeight / 2 + 4,
                       base::html_escape(layer.layer));
    svg += fmt::format("<line x1=\"{0:.0f}\" x2=\"{1:.0f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"axis\"/>", kLabel,
                       width, base_line);
    svg += fmt::format("<line x1=\"{0:.0f}\" x2=\"{1:.0f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"grid\"/>\n", kLabel,
                       width, top);
    for (size_t head = 0; head < layer.heads.size(); ++head) {
      const double share = std::clamp(layer.heads[head], 0.0, 1.0);
      const double x = kLabel + 6 + static_cast<double>(head) * kStep;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\" fill=\"#7b4fb5\" rx=\"1.5\"><title>head "
          "{}: {}</title></rect>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
          x, base_line - kHeight * share, kBar, kHeight * share, head, fmt::format("{:.2f}", share), x + kBar / 2,
          base_line + 11, fmt::format("{:.2f}", share));
    }
    svg += '\n';
  }
  return svg + "</svg>\n";
}

}  // namespace mnemo::inspect
