#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/preprocessing.h"
#include "data/detection/annotated_image.h"
#include "data/images/image.h"
#include "inspect/attention_summary.h"
#include "inspect/draw/canvas.h"
#include "inspect/gate_summary.h"
#include "inspect/image_record.h"

namespace mnemo::data {
struct DetectionInput;
}
namespace mnemo::tasks {
struct PreparedImages;
}

namespace mnemo::inspect {

/// An object that a detector finds in the picture, and the strength of each branch there.
struct SeenObject {
  std::string label;  ///< the number of its class, unless the caller names it
  int64_t category = 0;
  double score = 0;
  data::CornerBox box = {};    ///< in pixels of the image
  data::CornerBox shown = {};  ///< in pixels of the picture that the model sees
  struct Branch {
    int64_t layer = 0;
    std::string name;                   ///< "o_self", "o_mem"
    double inside = 0, everywhere = 0;  ///< mean of ImageBranch::strengths in the box and in the picture
    std::optional<double> share = {}, share_everywhere = {};  ///< likewise of ImageBranch::shares
  };
  std::vector<Branch> branches = {};
};

/// The best objects that a detector finds in one image, at most `most`, with the strengths of its layers' branches.
std::vector<SeenObject> seen_objects(const models::ImageModel& model, const tasks::PreparedImages& image,
                                     const std::vector<ImageLayer>& layers, int64_t most);

/// Attention of a vision model over one image.
struct ImageAttention {
  std::string name;     ///< file name
  data::Image picture;  ///< as the model sees it, cropped or padded, and resized
  std::vector<inspect::ImageLayer> layers = {};
  std::vector<int64_t> heads = {};  ///< shown individually, in addition to the mean over all heads
  std::vector<GateSpread> gates = {};
  std::vector<SeenObject> objects = {};  ///< of a detector
};

/// Runs an image file through the model. Heads named by `choice` are shown individually. Throws InputError if the file
/// is not an image, a choice is out of range, or no attention of these layers provides its weights.
ImageAttention inspect_image(const models::ImageModel& model, const bundle::ImagePreprocessing& facts,
                             const std::string& path, const AttentionChoice& choice);
/// A detector's attention over the image as tasks::prepare_image() makes it, and the objects that the detector finds.
/// The picture has the padding, in white.
ImageAttention inspect_image(const models::ImageModel& model, const data::DetectionInput& input,
                             const std::string& path, const AttentionChoice& choice);

/// Takes one head from values [H,..], or the mean over heads if head = -1.
at::Tensor of_head(const at::Tensor& heads, int64_t head);

std::string to_text(const ImageAttention& facts);
base::Node to_node(const ImageAttention& facts);
/// Tables for an HTML page that also shows the pictures.
std::string to_html(const ImageAttention& facts);

/// Draws starting at (left, top): the image, the attention of each layer as a heat map on it, and GRC's branches as
/// maps; objects as boxes on the image and these maps. Returns the lower right corner.
Canvas::Point draw_image_attention(Canvas& canvas, const ImageAttention& facts, double left, double top);

}  // namespace mnemo::inspect
