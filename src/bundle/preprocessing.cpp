#include "bundle/preprocessing.h"

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/foreign_images.h"

namespace mnemo::bundle {

void ImagePreprocessing::validate(const base::Where& where) const {
  where.require(image_size.size() == 2, "image_size", "expected [height, width], found {} numbers", image_size.size());
  where.require(image_size[0] * image_size[1] <= kMaxPixels, "image_size", "expected at most {} pixels, found {} x {}",
                kMaxPixels, image_size[0], image_size[1]);
  where.require(mean.size() == 3, "mean", "expected 3 numbers, found {}", mean.size());
  where.require(std.size() == 3, "std", "expected 3 numbers, found {}", std.size());
}

ImagePreprocessing ImagePreprocessing::of(const data::ImageOptions& options) {
  ImagePreprocessing facts;
  facts.image_size = options.image_size;
  facts.mean = options.mean;
  facts.std = options.std;
  facts.test_crop = options.test_crop;
  return facts;
}

std::optional<ImagePreprocessing> ImagePreprocessing::find(const std::string& folder) {
  if (folder.empty()) return std::nullopt;  // the model is not in a folder
  const std::string path = base::join_path(folder, kFile);
  const std::string text = base::path_exists(path) ? base::read_file(path, uint64_t{1} << 20)
                                                   : foreign_preprocessing(folder);
  if (text.empty()) return std::nullopt;
  base::Node facts = base::parse_json(text, path);
  // Files of earlier versions do not say it.
  if (facts.is_table() && !facts.contains("test_crop")) facts.set("test_crop", base::Node::table());
  base::Node* crop = facts.is_table() ? facts.find("test_crop") : nullptr;
  if (crop != nullptr && crop->is_table() && !crop->contains("resize")) crop->set("resize", "pillow12");
  return base::read_options<ImagePreprocessing>(facts);
}

ImagePreprocessing ImagePreprocessing::read(const std::string& folder) {
  const std::optional<ImagePreprocessing> facts = find(folder);
  base::require(facts.has_value(),
                "{}: missing; it says how images are preprocessed: {{\"image_size\": [224, 224], \"mean\": [0.485, "
                "0.456, 0.406], \"std\": [0.229, 0.224, 0.225]}}",
                base::join_path(folder, kFile));
  return *facts;
}

std::string ImagePreprocessing::text() const { return base::to_json(base::write_options(*this)) + "\n"; }

data::ImageOptions ImagePreprocessing::options() const {
  data::ImageOptions options;
  options.train = "images";
  options.image_size = image_size;
  options.mean = mean;
  options.std = std;
  options.test_crop = test_crop;
  return options;
}

}  // namespace mnemo::bundle
