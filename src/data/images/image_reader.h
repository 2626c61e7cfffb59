#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image.h"

namespace mnemo::data {

/// Options of the image reader.
struct ImageLimits {
  int64_t max_pixels = 178'956'970;  ///< maximum size of an image; checked before decoding
};

/// The header of an image file.
struct ImageHeader {
  std::string_view format;        ///< "JPEG" or "PNG"
  int64_t height = 0, width = 0;  ///< after applying the EXIF orientation
};

/// Reads a JPEG or PNG file as RGB; the format is detected from the content, not the name. The EXIF orientation is
/// applied. Grey images are expanded; CMYK and YCCK (stored inverted, as all programs do) become (255-C)(255-K)/255;
/// palettes are expanded; 1, 2 and 4 bits are scaled to 255, and of 16 bits the high byte is used. Alpha is dropped
/// without blending; gamma and colour profiles are ignored. Throws InputError "PATH: ..." for a file that is not such
/// an image, is damaged or truncated, or has more pixels than the limit.
Image read_image(const std::string& path, const ImageLimits& limits = {});
/// Same from memory; `name` replaces the file name in messages.
Image decode_image(std::string_view bytes, const std::string& name, const ImageLimits& limits = {});
/// Reads only the header, in a few microseconds.
ImageHeader read_image_header(const std::string& path, const ImageLimits& limits = {});

}  // namespace mnemo::data
