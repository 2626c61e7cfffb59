#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::data {

/// [x, y, width, height] in pixels.
using XywhBox = std::array<double, 4>;

/// A binary mask as the lengths of runs down the columns, zeros first (0 if it starts with a one); they add up to
/// height * width. Source: the COCO API.
struct Rle {
  int64_t height = 0, width = 0;
  std::vector<uint32_t> counts;
  friend bool operator==(const Rle&, const Rle&) = default;
};

/// Pixels of a mask, as the image reader allows them.
inline constexpr int64_t kMaxMaskPixels = 178'956'970;
/// Places of a polygon's outline, in fifths of a pixel.
inline constexpr int64_t kMaxOutline = int64_t{1} << 24;

/// mask: height * width bytes row by row, 0 or other.
Rle rle_encode(const uint8_t* mask, int64_t height, int64_t width);
/// Writes height * width bytes, 0 or 1, row by row.
void rle_decode(const Rle& rle, uint8_t* mask);

/// Count i, minus count i-2 if i > 2, as a signed number in groups of five bits, lowest first: + 32 if more follow,
/// + 48 as a character.
std::string rle_text(const Rle& rle);
/// Reads such a text. Throws InputError "WHERE: ..." unless its counts are a mask of that size.
Rle rle_parse(std::string_view text, int64_t height, int64_t width, const std::string& where);
/// Checks a list of counts likewise.
Rle rle_of_counts(std::span<const int64_t> counts, int64_t height, int64_t width, const std::string& where);

int64_t rle_area(const Rle& rle);
/// The smallest box around the ones; 0 0 0 0 of an empty mask.
XywhBox rle_box(const Rle& rle);
/// Union or intersection of masks of one size; at least one.
enum class RleMerge { unite, intersect };
Rle rle_merge(std::span<const Rle> masks, RleMerge how);
/// Pixels in both masks, of one size.
int64_t rle_shared(const Rle& a, const Rle& b);

/// Rasterises a polygon x1, y1, x2, y2 ... as pycocotools does: points times 5 and rounded, edges walked along their
/// longer axis, and of each column that the outline crosses the row of the crossing, even-odd down the columns. Parts
/// outside of the image are cut off. Throws InputError "WHERE: ..." for fewer than three points, coordinates that are
/// not finite, or an outline longer than kMaxOutline.
Rle rle_of_polygon(std::span<const double> points, int64_t height, int64_t width, const std::string& where);
/// Throws as rle_of_polygon() does, without rasterising.
void require_polygon(std::span<const double> points, const std::string& where);
/// A box as a polygon.
Rle rle_of_box(const XywhBox& box, int64_t height, int64_t width, const std::string& where);

}  // namespace mnemo::data
