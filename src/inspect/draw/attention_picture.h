#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "inspect/attention_summary.h"
#include "inspect/image_attention.h"

namespace mnemo::inspect {

/// Content of a picture: the maps of one segment (a row per layer) or of an image, and scalars over training steps.
/// Each may be absent.
struct AttentionPicture {
  const AttentionSummary* attention = nullptr;
  const ImageAttention* image = nullptr;
  const std::vector<ScalarPoint>* scalars = nullptr;
  size_t columns = 2;  ///< charts of scalars side by side
};

/// Rows are queries, columns keys, with their words at the edges. Darker means a larger weight; each map has its own
/// scale, drawn above it from 0 to its largest weight. Spans are coloured along the edges, with lines between them.
std::string svg_of(const AttentionPicture& picture);

/// Only the scalars, for a report.
std::string scalars_svg(const std::vector<ScalarPoint>& points, size_t columns = 2);

}  // namespace mnemo::inspect
