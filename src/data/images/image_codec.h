#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image_reader.h"

namespace mnemo::data {

/// One format of image files. Both functions throw InputError "NAME: FORMAT: ...".
struct ImageCodec {
  std::string_view format;
  bool (*recognises)(std::string_view bytes);
  Image (*decode)(std::string_view bytes, const std::string& name, const ImageLimits& limits);
  ImageHeader (*header)(std::string_view bytes, const std::string& name, const ImageLimits& limits);
};

const ImageCodec& jpeg_codec();
const ImageCodec& png_codec();

/// Throws InputError where an image of that size is over the limit.
void check_image_size(int64_t height, int64_t width, const std::string& name, std::string_view format,
                      const ImageLimits& limits);

/// The orientation in EXIF data (a TIFF header and its first directory); 1 where there is none that can be read.
int exif_orientation(std::string_view tiff);

/// The header that such an orientation makes of a stored size.
ImageHeader oriented_header(std::string_view format, int64_t height, int64_t width, int orientation);

}  // namespace mnemo::data
