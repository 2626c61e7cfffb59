#include "inspect/draw/canvas.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "base/error.h"
#include "base/html.h"

namespace mnemo::inspect {
namespace {

std::string hex(Colour colour) { return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue); }

/// Colours of a page's dark scheme (page.css): paper, ink, grey text and the lines behind a chart. Weights are light on
/// black, of which `screen` leaves the paper.
constexpr const char* kDark = R"(<style>@media screen and (prefers-color-scheme: dark) {
.maps > rect[fill="#fff"] { fill: #12171d } .maps text[fill="#1d2733"] { fill: #dce3ea }
.maps text[fill="#5b6878"] { fill: #9aa7b4 } .maps polyline[stroke="#e6ebf0"] { stroke: #262f39 }
.maps .weights { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen } }</style>
)";

/// Repeats each dot `times` times in both directions.
Raster enlarged(const Raster& raster, int64_t times) {
  Raster large{raster.width * times, raster.height * times, {}};
  large.dots.reserve(static_cast<size_t>(large.width * large.height));
  for (int64_t y = 0; y < large.height; ++y) {
    for (int64_t x = 0; x < large.width; ++x) large.dots.push_back(raster.at(x / times, y / times));
  }
  return large;
}

}  // namespace

double width_of(std::string_view text, double size) {
  double letters = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if ((byte & 0xc0) != 0x80) letters += byte < 0xe3 ? 0.62 : 1;
  }
  return letters * size;
}

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

std::string Canvas::svg(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"maps\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"sans-serif\">\n"
      "{2}<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n{3}</svg>\n",
      width, height, kDark, drawn_);
}

void Canvas::rectangle(double x, double y, double width, double height, Colour colour) {
  drawn_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
                        width, height, hex(colour));
}

void Canvas::line(const std::vector<Point>& points, Colour colour, double width) {
  drawn_ += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" points=\"", hex(colour), width);
  for (const Point& point : points) drawn_ += fmt::format("{:.1f},{:.1f} ", point.x, point.y);
  drawn_ += "\"/>\n";
}

void Canvas::text(double x, double y, std::string_view text, double size, Anchor anchor, Colour colour, bool upwards) {
  const char* where = anchor == Anchor::left ? "start" : anchor == Anchor::middle ? "middle" : "end";
  drawn_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y, size,
      where, hex(colour), upwards ? fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x, y) : "",
      base::html_escape(text));
}

void Canvas::cells(double x, double y, double cell, const Raster& raster, Cells kind) {
  // librsvg 2.54 blurs enlarged images despite image-rendering: with two dots per pixel there is nothing to enlarge.
  const Raster dots = enlarged(raster, std::max<int64_t>(1, static_cast<int64_t>(std::ceil(2 * cell))));
  drawn_ += fmt::format(
      "<image{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" preserveAspectRatio=\"none\" "
      "style=\"image-rendering:pixelated\" "
      "href=\"data:image/png;base64,{}\"/>\n",
      kind == Cells::weights ? " class=\"weights\"" : "", x, y, cell * static_cast<double>(raster.width),
      cell * static_cast<double>(raster.height), base::to_base64(png_of(dots)));
}

}  // namespace mnemo::inspect
