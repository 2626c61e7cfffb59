#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/images/image_codec.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "options_check.h"

/// Any bytes: an image of the size given in its header, or an InputError that names the file; never more pixels than
/// allowed. A model's input made from it has the model's size, whatever the image's shape.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const data::ImageLimits limits{.max_pixels = 1 << 18};
  fuzz::only_input_errors([&] {
    const data::Image image = data::decode_image(bytes, "input", limits);
    fuzz::demand(image.height > 0 && image.width > 0 && image.height * image.width <= limits.max_pixels,
                 "an image's size");
    fuzz::demand(static_cast<std::int64_t>(image.bytes.size()) == image.height * image.width * 3, "an image's bytes");
    data::ImageTestOptions options;
    for (const auto mode : {data::ImageTestOptions::CropMode::center, data::ImageTestOptions::CropMode::squash}) {
      options.crop_mode = mode;
      const data::Image crop = data::TestCrop::of(options, 16, 24)(image);
      fuzz::demand(crop.height == 16 && crop.width == 24 && crop.bytes.size() == 16 * 24 * 3, "the test crop's size");
    }
    for (const data::ImageCodec* codec : {&data::jpeg_codec(), &data::png_codec()}) {
      if (!codec->recognises(bytes)) continue;
      const data::ImageHeader header = codec->header(bytes, "input", limits);
      // PNG may store its orientation after the pixels, where reading the header does not look.
      const bool same = header.height == image.height && header.width == image.width;
      fuzz::demand(same || (header.height == image.width && header.width == image.height), "the header's size");
    }
  });
  const int orientation = data::orientation_of(bytes, bytes);
  fuzz::demand(orientation >= 1 && orientation <= 8, "an orientation");
  return 0;
}
