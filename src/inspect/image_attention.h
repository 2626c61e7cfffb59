#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/preprocessing.h"
#include "data/images/image.h"
#include "inspect/attention_summary.h"
#include "inspect/draw/canvas.h"
#include "inspect/gate_summary.h"
#include "inspect/image_record.h"

namespace mnemo::inspect {

/// What the attentions of a model of images did with one image.
struct ImageAttention {
  std::string name;     ///< of its file
  data::Image picture;  ///< as the model saw it, cut and resized
  std::vector<inspect::ImageLayer> layers;
  std::vector<int64_t> heads = {};  ///< shown one by one, beside the mean of them all
  std::vector<GateSpread> gates = {};
};

/// Runs an image file through the model. Heads are shown one by one where `choice` names some. Throws InputError for a
/// file that is no image, a choice out of range, and where no attention of these layers says where it looks.
ImageAttention inspect_image(const models::Model& model, const bundle::ImagePreprocessing& facts,
                             const std::string& path, const AttentionChoice& choice);

/// Of values by heads, [H,..]: those of one head, or their mean, head = -1.
at::Tensor of_head(const at::Tensor& heads, int64_t head);

std::string to_text(const ImageAttention& facts);
base::Node to_node(const ImageAttention& facts);
/// Tables for a page; the pictures stand beside them.
std::string to_html(const ImageAttention& facts);

/// Draws from (left, top) on: the picture; where each layer looks as heat on it; GRC's branches as maps. Returns right
/// and lower end.
Canvas::Point draw_image_attention(Canvas& canvas, const ImageAttention& facts, double left, double top);

}  // namespace mnemo::inspect
