#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::inspect {

struct Colour {
  uint8_t red = 0, green = 0, blue = 0;
};

/// A picture of dots, row after row from the top.
struct Raster {
  int64_t width = 0, height = 0;
  std::vector<Colour> dots;
  Colour& at(int64_t x, int64_t y) { return dots[static_cast<size_t>(y * width + x)]; }
  const Colour& at(int64_t x, int64_t y) const { return dots[static_cast<size_t>(y * width + x)]; }
};

/// A PNG file. Throws InternalError where libpng cannot write it.
std::string png_of(const Raster& raster);

enum class Anchor { left, middle, right };

/// What pictures are drawn on: SVG. Units are pixels of a screen, y goes down; cells are a PNG inside.
class Canvas {
 public:
  struct Point {
    double x, y;
  };
  void rectangle(double x, double y, double width, double height, Colour colour);
  void line(const std::vector<Point>& points, Colour colour, double width);
  /// (x, y) is where the text's line begins, is in its middle, or ends.
  void text(double x, double y, std::string_view text, double size, Anchor anchor = Anchor::left,
            Colour colour = {0x1d, 0x27, 0x33});
  /// Each dot as a cell of cell * cell pixels.
  void cells(double x, double y, double cell, const Raster& raster);
  /// What was drawn, on white.
  std::string svg(double width, double height) const;

 private:
  std::string drawn_;
};

}  // namespace mnemo::inspect
