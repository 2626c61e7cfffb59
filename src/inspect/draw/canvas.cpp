#include "inspect/draw/canvas.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/html.h"

namespace mnemo::inspect {
namespace {

constexpr double kDotsAPixel = 2;  // dots of a PNG a pixel

std::string hex(Colour colour) { return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue); }

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

/// Letters as the font counts them: one for each character of UTF-8.
std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if ((byte & 0xc0) == 0x80) continue;  // goes on with the character before
    letters += byte >= 0x80 ? '?' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

}  // namespace

std::string png_of(const Raster& raster) {
  base::ensure(raster.width > 0 && raster.height > 0 && raster.width <= 1 << 16 && raster.height <= 1 << 16,
               "a picture of no size");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(raster.width);
  image.height = static_cast<png_uint_32>(raster.height);
  image.format = PNG_FORMAT_RGB;
  static_assert(sizeof(Colour) == 3);
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  const bool written = png_image_write_to_memory(&image, bytes.data(), &size, 0, raster.dots.data(), 0, nullptr) != 0;
  base::ensure(written, "libpng cannot write a picture");
  bytes.resize(size);
  return bytes;
}

SvgCanvas::SvgCanvas(double width, double height)
    : svg_(fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"maps\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
                       "width=\"{0:.0f}\" height=\"{1:.0f}\" "
                       "font-family=\"sans-serif\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
                       width, height)) {}

void SvgCanvas::rectangle(double x, double y, double width, double height, Colour colour) {
  svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y, width,
                      height, hex(colour));
}

void SvgCanvas::line(const std::vector<Point>& points, Colour colour, double width) {
  svg_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" points=\"", hex(colour), width);
  for (const Point& point : points) svg_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  svg_ += "\"/>\n";
}

void SvgCanvas::text(double x, double y, std::string_view text, double size, Anchor anchor, Colour colour) {
  const char* where = anchor == Anchor::left ? "start" : anchor == Anchor::middle ? "middle" : "end";
  svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n",
                      x, y, size, where, hex(colour), base::html_escape(text));
}

void SvgCanvas::cells(double x, double y, double cell, const Raster& raster) {
  svg_ += fmt::format(
      "<image x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" preserveAspectRatio=\"none\" "
      "style=\"image-rendering:pixelated\" "
      "href=\"data:image/png;base64,{}\"/>\n",
      x, y, cell * static_cast<double>(raster.width), cell * static_cast<double>(raster.height),
      base64(png_of(raster)));
}

PngCanvas::PngCanvas(double width, double height) {
  raster_.width = static_cast<int64_t>(std::ceil(width * kDotsAPixel));
  raster_.height = static_cast<int64_t>(std::ceil(height * kDotsAPixel));
  raster_.dots.assign(static_cast<size_t>(raster_.width * raster_.height), Colour{255, 255, 255});
}

void PngCanvas::rectangle(double x, double y, double width, double height, Colour colour) {
  const auto edge = [](double at, int64_t limit) {
    return std::clamp<int64_t>(std::llround(at * kDotsAPixel), 0, limit);
  };
  const int64_t left = edge(x, raster_.width), right = edge(x + width, raster_.width);
  const int64_t top = edge(y, raster_.height), bottom = edge(y + height, raster_.height);
  for (int64_t row = top; row < bottom; ++row)
    std::fill(&raster_.at(left, row), &raster_.at(left, row) + (right - left), colour);
}

void PngCanvas::line(const std::vector<Point>& points, Colour colour, double width) {
  for (size_t i = 1; i < points.size(); ++i) {
    const Point from = points[i - 1], to = points[i];
    const int steps = 1 + static_cast<int>(kDotsAPixel * std::max(std::abs(to.x - from.x), std::abs(to.y - from.y)));
    for (int step = 0; step <= steps; ++step) {
      const double part = static_cast<double>(step) / steps;
      rectangle(from.x + part * (to.x - from.x) - width / 2, from.y + part * (to.y - from.y) - width / 2, width, width,
                colour);
    }
  }
}

void PngCanvas::text(double x, double y, std::string_view text, double size, Anchor anchor, Colour colour) {
  const std::string letters = letters_of(text);
  // A glyph of seven rows stands for letters whose size is ten.
  const double dot = std::max(1.0, std::round(size / 10 * kDotsAPixel)) / kDotsAPixel;
  const double width = 6 * dot * static_cast<double>(letters.size());
  double left = anchor == Anchor::left ? x : anchor == Anchor::middle ? x - width / 2 : x - width;
  for (const char letter : letters) {
    const uint8_t* rows = glyph_of(letter);
    if (rows == nullptr) rows = glyph_of('?');
    for (int row = 0; row < 7; ++row) {
      for (int column = 0; column < 5; ++column) {
        if ((rows[row] >> (4 - column) & 1) != 0) rectangle(left + column * dot, y + (row - 7) * dot, dot, dot, colour);
      }
    }
    left += 6 * dot;
  }
}

void PngCanvas::cells(double x, double y, double cell, const Raster& raster) {
  for (int64_t row = 0; row < raster.height; ++row) {
    for (int64_t column = 0; column < raster.width; ++column) {
      rectangle(x + cell * static_cast<double>(column), y + cell * static_cast<double>(row), cell, cell,
                raster.at(column, row));
    }
  }
}

}  // namespace mnemo::inspect
