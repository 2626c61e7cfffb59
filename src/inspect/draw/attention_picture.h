#pragma once

#include <string>
#include <vector>

#include "inspect/attention_summary.h"
#include "inspect/image_attention.h"

namespace mnemo::inspect {

/// What is drawn: the maps of one segment, a row of them for each layer; or those of an image; and scalars over the
/// steps of a training. Each may be absent.
struct AttentionPicture {
  const AttentionSummary* attention = nullptr;
  const ImageAttention* image = nullptr;
  const std::vector<ScalarPoint>* scalars = nullptr;
};

/// Rows are queries, columns keys; the darker, the larger the weight, each map on a scale of its own (its largest
/// weight is told). Spans have their colours along the edges, and lines where one ends.
std::string svg_of(const AttentionPicture& picture);

/// Scalars alone, for a report.
std::string scalars_svg(const std::vector<ScalarPoint>& points);

}  // namespace mnemo::inspect
