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

/// The bytes of a PNG file. Throws InternalError where libpng cannot write it.
std::string png_of(const Raster& raster);

enum class Anchor { left, middle, right };

/// What pictures are drawn on. Units are pixels of a screen, y goes down.
class Canvas {
 public:
  struct Point {
    double x, y;
  };
  virtual ~Canvas() = default;
  virtual void rectangle(double x, double y, double width, double height, Colour colour) = 0;
  virtual void line(const std::vector<Point>& points, Colour colour, double width) = 0;
  /// (x, y) is where the text's line begins, is in its middle, or ends.
  virtual void text(double x, double y, std::string_view text, double size, Anchor anchor = Anchor::left,
                    Colour colour = {0x1d, 0x27, 0x33}) = 0;
  /// Each dot as a cell of cell * cell pixels.
  virtual void cells(double x, double y, double cell, const Raster& raster) = 0;
};

/// A vector picture; cells are a PNG inside.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(double width, double height);
  void rectangle(double x, double y, double width, double height, Colour colour) override;
  void line(const std::vector<Point>& points, Colour colour, double width) override;
  void text(double x, double y, std::string_view text, double size, Anchor anchor, Colour colour) override;
  void cells(double x, double y, double cell, const Raster& raster) override;
  std::string finish() const { return svg_ + "</svg>\n"; }

 private:
  std::string svg_;
};

/// Dots, two a pixel each way; letters of a built-in font (small letters, digits, signs; others look like '?').
class PngCanvas final : public Canvas {
 public:
  PngCanvas(double width, double height);
  void rectangle(double x, double y, double width, double height, Colour colour) override;
  void line(const std::vector<Point>& points, Colour colour, double width) override;
  void text(double x, double y, std::string_view text, double size, Anchor anchor, Colour colour) override;
  void cells(double x, double y, double cell, const Raster& raster) override;
  std::string finish() const { return png_of(raster_); }
  const Raster& raster() const { return raster_; }

 private:
  Raster raster_;
};

/// A glyph of the built-in font: seven rows from the top, five bits each, the highest on the left. Nothing for letters
/// it does not have.
const uint8_t* glyph_of(char letter);

}  // namespace mnemo::inspect
