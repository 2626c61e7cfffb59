#pragma once

#include <string>
#include <vector>

#include "inspect/attention_summary.h"
#include "inspect/image_attention.h"

namespace mnemo::inspect {

/// What is drawn: the maps of one segment, a row of them for each layer; or those of an image; and gauges over the
/// steps of a training. Each may be absent.
struct AttentionPicture {
  const AttentionFacts* attention = nullptr;
  const ImageAttention* image = nullptr;
  const std::vector<GaugePoint>* gauges = nullptr;
};

/// Rows are queries, columns keys; the darker, the larger the weight, each map on a scale of its own (its largest
/// weight is told). Spans have their colours along the edges, and lines where one ends.
std::string svg_of(const AttentionPicture& picture);
std::string png_of(const AttentionPicture& picture);

/// Gauges alone, for a report.
std::string gauges_svg(const std::vector<GaugePoint>& points);

}  // namespace mnemo::inspect
