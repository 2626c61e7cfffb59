#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image.h"

namespace mnemo::data {

/// What a reader may be asked for.
struct ImageLimits {
  int64_t max_pixels = 178'956'970;  ///< of an image; checked before anything is decoded
};

/// What stands in a file's header.
struct ImageHeader {
  std::string_view format;        ///< "JPEG" or "PNG"
  int64_t height = 0, width = 0;  ///< as it is seen, EXIF's orientation applied
};

/// Reads a JPEG or PNG file as RGB. The content decides, not the name. EXIF's orientation is applied; grey is repeated;
/// CMYK and YCCK (stored inverted, as all programs do) become (255-C)(255-K)/255; palettes are looked up; 1, 2 and 4
/// bits are scaled to 255, of 16 bits the high byte is taken; alpha is dropped without blending, gamma and colour
/// profiles are ignored. Throws InputError "PATH: ..." for a file that is no such image, is broken or cut off, or has
/// more pixels than the limit.
Image read_image(const std::string& path, const ImageLimits& limits = {});
/// The same from memory; `name` stands for the file in messages.
Image decode_image(std::string_view bytes, const std::string& name, const ImageLimits& limits = {});
/// The header alone, a few microseconds.
ImageHeader read_image_header(const std::string& path, const ImageLimits& limits = {});

}  // namespace mnemo::data
