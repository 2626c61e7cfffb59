#include "data/images/image_reader.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "data/images/image_codec.h"

namespace mnemo::data {
namespace {

constexpr uint64_t kLongestImageFile = uint64_t{1} << 30;

/// Describes a file that is not a supported image, for the error message.
std::string found_format(std::string_view bytes) {
  if (bytes.empty()) return "an empty file";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kOthers = {{{"GIF8", "GIF"},
                                                                                     {"BM", "BMP"},
                                                                                     {"II*", "TIFF"},
                                                                                     {"MM", "TIFF"},
                                                                                     {"RIFF", "WebP"},
                                                                                     {"P5", "PGM"},
                                                                                     {"P6", "PPM"}}};
  for (const auto& [start, name] : kOthers) {
    if (bytes.starts_with(start)) return fmt::format("what looks like {}", name);
  }
  return fmt::format("{} bytes of something else", bytes.size());
}

const ImageCodec& codec_of(std::string_view bytes, const std::string& name) {
  for (const ImageCodec* codec : {&jpeg_codec(), &png_codec()}) {
    if (codec->recognises(bytes)) return *codec;
  }
  base::input_error("{}: expected a JPEG or PNG image, found {}", name, found_format(bytes));
}

}  // namespace

std::optional<int> exif_orientation(std::string_view tiff) {
  constexpr std::nullopt_t kNone = std::nullopt;
  constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4;
  if (tiff.size() < 8) return kNone;
  const bool little = tiff.starts_with("II");
  if (!little && !tiff.starts_with("MM")) return kNone;
  const auto number = [&](size_t at, size_t bytes) -> std::optional<uint32_t> {
    if (at > tiff.size() || tiff.size() - at < bytes) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      value = value << 8 | static_cast<uint8_t>(tiff[at + (little ? bytes - 1 - i : i)]);
    }
    return value;
  };
  if (number(2, 2) != 42u) return kNone;
  const size_t directory = *number(4, 4);
  const auto entries = number(directory, 2);
  if (!entries) return kNone;
  for (uint32_t i = 0; i < *entries; ++i) {
    const size_t entry = directory + 2 + size_t{i} * 12;
    const auto tag = number(entry, 2), type = number(entry + 2, 2);
    if (!tag || !type) return kNone;
    if (*tag != kOrientation) continue;
    const auto value = *type == kShort ? number(entry + 8, 2) : *type == kLong ? number(entry + 8, 4) : std::nullopt;
    return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
  }
  return kNone;
}

int orientation_of(std::string_view exif, std::string_view xmp) {
  if (const auto found = exif_orientation(exif)) return *found;
  constexpr std::string_view kKey = "tiff:Orientation";
  for (size_t at = xmp.find(kKey); at != std::string_view::npos; at = xmp.find(kKey, at)) {
    at += kKey.size();
    std::string_view rest = xmp.substr(at);
    if (!rest.starts_with("=\"") && !rest.starts_with('>')) continue;
    rest.remove_prefix(rest[0] == '>' ? 1 : 2);
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] >= '1' && rest[0] <= '8' ? rest[0] - '0' : 1;
  }
  return 1;
}

ImageHeader oriented_header(std::string_view format, int64_t height, int64_t width, int orientation) {
  const bool turned = orientation >= 5 && orientation <= 8;
  return {format, turned ? width : height, turned ? height : width, orientation};
}

void check_image_size(int64_t height, int64_t width, const std::string& name, std::string_view format,
                      const ImageLimits& limits) {
  base::require(height > 0 && width > 0 && height <= limits.max_pixels / width,
                "{}: {}: {} x {} pixels, expected at least one and at most {} in all", name, format, width, height,
                limits.max_pixels);
  base::require(width <= limits.max_width && height <= limits.max_height,
                "{}: {}: {} x {} pixels, expected at most {} in a row and at most {} rows", name, format, width, height,
                limits.max_width, limits.max_height);
}

Image decode_image(std::string_view bytes, const std::string& name, const ImageLimits& limits) {
  return codec_of(bytes, name).decode(bytes, name, limits);
}

Image read_image(const std::string& path, const ImageLimits& limits) {
  return decode_image(base::read_file(path, kLongestImageFile), path, limits);
}

ImageHeader read_image_header(const std::string& path, const ImageLimits& limits) {
  const base::MappedFile file(path);
  return codec_of(file.bytes(), path).header(file.bytes(), path, limits);
}

}  // namespace mnemo::data
