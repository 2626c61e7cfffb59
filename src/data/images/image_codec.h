#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "data/images/image_reader.h"

namespace mnemo::data {

/// A decoder for one image format. Both functions throw InputError "NAME: FORMAT: ...".
struct ImageCodec {
  std::string_view format;
  bool (*recognises)(std::string_view bytes);
  Image (*decode)(std::string_view bytes, const std::string& name, const ImageLimits& limits);
  ImageHeader (*header)(std::string_view bytes, const std::string& name, const ImageLimits& limits);
};

const ImageCodec& jpeg_codec();
const ImageCodec& png_codec();

/// Throws InputError if an image of that size exceeds a limit.
void check_image_size(int64_t height, int64_t width, const std::string& name, std::string_view format,
                      const ImageLimits& limits);

/// The orientation in EXIF data (a TIFF header and its first directory); nothing if it has none, 1 for an invalid one.
std::optional<int> exif_orientation(std::string_view tiff);
/// That of EXIF data, otherwise that of XMP (`tiff:Orientation`), as Pillow has it; 1 if there is none.
int orientation_of(std::string_view exif, std::string_view xmp);

/// The header after applying such an orientation to the stored size.
ImageHeader oriented_header(std::string_view format, int64_t height, int64_t width, int orientation);

}  // namespace mnemo::data
