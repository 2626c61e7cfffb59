#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image.h"

namespace mnemo::data {

/// Limits of the image reader, each checked by itself before decoding.
struct ImageLimits {
  int64_t max_width = 1 << 20;       ///< pixels of a row
  int64_t max_height = 1 << 20;      ///< rows
  int64_t max_pixels = 178'956'970;  ///< of the image: 512 MiB once decoded
};

/// The header of an image file.
struct ImageHeader {
  std::string_view format;        ///< "JPEG" or "PNG"
  int64_t height = 0, width = 0;  ///< after applying the EXIF orientation
  int orientation = 1;            ///< that orientation, 1 to 8
};

/// Reads a JPEG or PNG file as RGB; the format is detected from the content, not the name. The EXIF orientation is
/// applied. Grey images are expanded; CMYK and YCCK (stored inverted, as all programs do) become (255-C)(255-K)/255;
/// palettes are expanded; 1, 2 and 4 bits are scaled to 255, and of 16 bits the high byte is used. Alpha is dropped
/// without blending; gamma and colour profiles are ignored. Throws InputError "PATH: ..." for a file that is not such
/// an image, is damaged or truncated, or exceeds a limit.
Image read_image(const std::string& path, const ImageLimits& limits = {});
/// Same from memory; `name` replaces the file name in messages.
Image decode_image(std::string_view bytes, const std::string& name, const ImageLimits& limits = {});
/// Reads only the header, in a few microseconds.
ImageHeader read_image_header(const std::string& path, const ImageLimits& limits = {});

}  // namespace mnemo::data
