#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::inspect {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
};

/// An image of dots, row by row from the top.
struct Raster {
  int64_t width = 0, height = 0;
  std::vector<Colour> dots;
  Colour& at(int64_t x, int64_t y) { return dots[static_cast<size_t>(y * width + x)]; }
  const Colour& at(int64_t x, int64_t y) const { return dots[static_cast<size_t>(y * width + x)]; }
};

/// As a PNG file. Throws InternalError if libpng cannot write it.
std::string png_of(const Raster& raster);

enum class Anchor { left, middle, right };
/// The kind of a raster: a picture, or weights, dark on paper, which a dark scheme turns into light on dark.
enum class Cells { picture, weights };

/// About how wide a text is, in letters of common fonts: 0.62 of the size, 1 for the scripts of East Asia.
double width_of(std::string_view text, double size);

/// A drawing surface that produces SVG. Units are screen pixels, y points down; cells are embedded as a PNG.
class Canvas {
 public:
  struct Point {
    double x, y;
  };
  void rectangle(double x, double y, double width, double height, Colour colour);
  void line(const std::vector<Point>& points, Colour colour, double width);
  /// (x, y) is the start, middle or end of the text's baseline; `upwards` turns it to the left about that point.
  void text(double x, double y, std::string_view text, double size, Anchor anchor = Anchor::left,
            Colour colour = {0x1d, 0x27, 0x33}, bool upwards = false);
  /// Each dot as a square of cell * cell pixels.
  void cells(double x, double y, double cell, const Raster& raster, Cells kind = Cells::picture);
  /// The drawing on a white background; on a screen with a dark scheme, paper and ink are dark and light.
  std::string svg(double width, double height) const;

 private:
  std::string drawn_;
};

}  // namespace mnemo::inspect
