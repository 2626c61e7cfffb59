#pragma once

#include <cstddef>

#include "base/node.h"
#include "inspect/attention_summary.h"
#include "inspect/image_attention.h"
#include "page/document.h"

namespace mnemo::inspect {

/// Limit of the weights that a page holds, in bytes as text; further heads are left out with a note.
inline constexpr size_t kMaxViewBytes = size_t{20} << 20;
/// About as many weights.
inline constexpr int64_t kMaxViewWeights = kMaxViewBytes * 3 / 8;

/// The maps of the segments for assets/attention.js, those of the chosen one first:
///   segment, num_segments  the chosen one, from 1; those of the input
///   axes  [{labels: ["read 0", "O", "n", ...], spans: [{kind: "read", length: 1}, ...]}]
///   maps  [{segment, layer, head, name, rows: index of an axis, columns: index of an axis, weights: base64, past:
///         base64}]
/// Weights are float16, little-endian, row after row; `past` is missing where the map has none.
base::Node attention_view(const InputAttention& input, size_t max_bytes = kMaxViewBytes);

/// Adds the text on which attention is shown, and the heat map with values.
void add_attention_view(page::Document& page, const InputAttention& input);

/// The heat maps of an image for assets/image.js:
///   picture  the image as the model sees it, a PNG file as base64
///   maps     [{from, layer, head: -1 for the mean, height, width, weights: base64 as above}]
base::Node image_view(const ImageAttention& facts, size_t max_bytes = kMaxViewBytes);
/// Adds the heat maps on an image as large as the page.
void add_image_view(page::Document& page, const ImageAttention& facts);

}  // namespace mnemo::inspect
