#include "data/detection/detection_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "base/html.h"
#include "base/utf8.h"
#include "data/detection/jpeg_bytes.h"

namespace mnemo::data {
namespace {

constexpr int kQuality = 88;
constexpr int64_t kPicturesInRow = 3;
constexpr double kGap = 10;

/// Colours that differ on photos, for people of any colour vision (Okabe and Ito 2008) first; more by the golden angle.
std::string colour_of(int64_t category) {
  constexpr std::array<const char*, 8> kFirst = {"#e69f00", "#56b4e9", "#009e73", "#f0e442",
                                                 "#0072b2", "#d55e00", "#cc79a7", "#7fdb3b"};
  if (category < static_cast<int64_t>(kFirst.size())) return kFirst[static_cast<size_t>(category)];
  return fmt::format("hsl({:.0f},75%,55%)", std::fmod(static_cast<double>(category) * 137.508, 360.0));
}

/// Black on light colours, white on dark ones.
const char* ink_on(int64_t category) { return category == 4 || category == 5 || category == 2 ? "#fff" : "#111"; }

struct Corner {
  int64_t x = 0, y = 0;
  auto operator<=>(const Corner&) const = default;
};

/// The closed lines between the pixels of a mask and the others, each with the mask on its right.
std::vector<std::vector<Corner>> outlines(const PixelBitmap& mask) {
  const auto inside = [&](int64_t y, int64_t x) {
    return y >= 0 && x >= 0 && y < mask.height && x < mask.width &&
           mask.bytes[static_cast<size_t>(y * mask.width + x)] != 0;
  };
  std::multimap<Corner, Corner> next;
  for (int64_t y = 0; y < mask.height; ++y) {
    for (int64_t x = 0; x < mask.width; ++x) {
      if (!inside(y, x)) continue;
      if (!inside(y - 1, x)) next.emplace(Corner{x, y}, Corner{x + 1, y});
      if (!inside(y, x + 1)) next.emplace(Corner{x + 1, y}, Corner{x + 1, y + 1});
      if (!inside(y + 1, x)) next.emplace(Corner{x + 1, y + 1}, Corner{x, y + 1});
      if (!inside(y, x - 1)) next.emplace(Corner{x, y + 1}, Corner{x, y});
    }
  }
  std::vector<std::vector<Corner>> lines;
  while (!next.empty()) {
    std::vector<Corner>& line = lines.emplace_back();
    for (auto edge = next.begin(); edge != next.end(); edge = next.find(line.back())) {
      if (line.empty()) line.push_back(edge->first);
      line.push_back(edge->second);
      next.erase(edge);
    }
  }
  return lines;
}

/// Marks the points of line[first..last] that are kept.
void simplify(const std::vector<Corner>& line, size_t first, size_t last, double tolerance, std::vector<bool>& kept) {
  std::vector<std::pair<size_t, size_t>> open = {{first, last}};
  while (!open.empty()) {
    const auto [a, b] = open.back();
    open.pop_back();
    const double dx = static_cast<double>(line[b].x - line[a].x), dy = static_cast<double>(line[b].y - line[a].y),
                 length = std::hypot(dx, dy);
    size_t farthest = a;
    double distance = tolerance;
    for (size_t i = a + 1; i < b; ++i) {
      const double px = static_cast<double>(line[i].x - line[a].x), py = static_cast<double>(line[i].y - line[a].y);
      const double off = length > 0 ? std::abs(px * dy - py * dx) / length : std::hypot(px, py);
      if (off > distance) distance = off, farthest = i;
    }
    if (farthest == a) continue;
    kept[farthest] = true;
    open.emplace_back(a, farthest);
    open.emplace_back(farthest, b);
  }
}

/// Where labels stand: at their box, or joined to it by a line; on no other label, and hiding little of the objects.
class LabelPlaces {
 public:
  struct Place {
    double x = 0, y = 0;  ///< the upper left corner
    size_t form = 0;
    bool is_far = false;
  };

  LabelPlaces(double width, double height) : width_(width), height_(height) {}
  void add_object(const CornerBox& box) { objects_.push_back(box); }
  size_t num_objects() const { return objects_.size(); }

  /// For a label of height h at a box, as wide as its long or its short form. Nothing where all is taken.
  std::optional<Place> place(const CornerBox& box, const std::array<double, 2>& widths, double h) {
    constexpr double kShort = 0.2, kFar = 0.4, kStep = 0.08;  // in parts of an object that is hidden instead
    const auto [left, top, right, bottom] = box;
    std::optional<Place> best;
    double least = HUGE_VAL;
    for (size_t form = 0; form < widths.size(); ++form) {
      const double w = widths[form], space = right - left - w;
      const auto consider = [&](double x, double y, double price, bool is_far = false) {
        x = std::clamp(x, 0.0, std::max(0.0, width_ - w));
        const CornerBox own = {x, y, x + w, y + h};
        if (y < 0 || y + h > height_ || is_taken(own)) return;
        price += hidden(own) + kShort * static_cast<double>(form);
        if (price < least) least = price, best = {x, y, form, is_far};
      };
      for (const double along : {0.0, 0.5, 1.0}) {
        const double x = left + along * space, price = along * kStep;
        consider(x, top - h, price);
        consider(x, bottom, price + kStep);
        consider(x, top, price + 2 * kStep);
      }
      for (const double y : {top, bottom - h}) {
        consider(left - w, y, 2 * kStep);
        consider(right, y, 2 * kStep);
      }
      for (int rows = 1; rows <= 8; ++rows) {
        for (int columns = -4; columns <= 4; ++columns) {
          const double x = left + 0.5 * w * columns, price = kFar + kStep * (rows + std::abs(columns));
          consider(x, top - h * (1 + rows), price, true);
          consider(x, bottom + h * rows, price, true);
        }
      }
    }
    if (best) taken_.push_back({best->x, best->y, best->x + widths[best->form], best->y + h});
    return best;
  }

 private:
  static double common(const CornerBox& a, const CornerBox& b) {
    const double w = std::min(a[2], b[2]) - std::max(a[0], b[0]), h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
    return w > 0 && h > 0 ? w * h : 0;
  }
  bool is_taken(const CornerBox& place) const {
    return std::ranges::any_of(taken_, [&](const CornerBox& other) { return common(place, other) > 0; });
  }
  /// The parts of all objects that a label there hides, added up.
  double hidden(const CornerBox& place) const {
    double sum = 0;
    for (const CornerBox& o : objects_) sum += common(place, o) / std::max(1.0, (o[2] - o[0]) * (o[3] - o[1]));
    return sum;
  }
  double width_, height_;
  std::vector<CornerBox> objects_, taken_;
};

/// Draws the objects of one picture.
class ObjectDrawing {
 public:
  ObjectDrawing(double width, double height, double scale, std::span<const DrawnObject> objects)
      : scale_(scale), places_(width, height) {
    for (const DrawnObject& object : objects)
      if (!object.is_truth) places_.add_object(scaled(object.box));
    font_ = std::clamp(std::min(width, height) / (places_.num_objects() > kCrowd ? 42 : 32), 10.0, 22.0);
    line_ = std::clamp(font_ / 7, 1.5, 3.0);
  }

  void outline(const DrawnObject& object) {
    const CornerBox b = scaled(object.box);
    const double x = b[0], y = b[1], w = b[2] - b[0], h = b[3] - b[1];
    if (object.is_truth) {
      for (const char* style : {"stroke=\"#000\" stroke-opacity=\"0.45\"", "stroke=\"#fff\" stroke-dasharray=\"4 3\""})
        svg += fmt::format(
            "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke-width=\"1.2\" "
            "{}/>\n",
            x, y, w, h, style);
      return;
    }
    const std::string colour = colour_of(object.category);
    if (!object.mask.counts.empty())
      svg += fmt::format(
          "<path d=\"{}\" fill=\"{}\" fill-opacity=\"0.42\" fill-rule=\"evenodd\" stroke=\"{}\" "
          "stroke-width=\"{:.1f}\" "
          "stroke-linejoin=\"round\"/>\n",
          mask_outline(bitmap_of(object.mask), scale_, 0.8 / scale_), colour, colour, line_ * 0.7);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" fill=\"none\" stroke=\"{}\" "
        "stroke-width=\"{:.1f}\"/>\n",
        x, y, w, h, colour, line_);
  }

  void label(const DrawnObject& object) {
    if (object.is_truth) return;
    const std::array<std::string, 2> texts = {fmt::format("{} {:.0f} %", object.label, 100 * object.score),
                                              object.label};
    const auto width_of = [&](const std::string& text) {
      return static_cast<double>(base::count_characters(text)) * font_ * 0.64 + font_ * 0.7;
    };
    const std::array<double, 2> widths = {width_of(texts[0]), width_of(texts[1])};
    const double h = font_ * 1.4;
    CornerBox box = scaled(object.box);
    box[0] -= line_ / 2;
    const auto place = places_.place(box, widths, h);
    if (!place) return;
    const auto [x, y, form, is_far] = *place;
    const double w = widths[form];
    const std::string colour = colour_of(object.category);
    if (is_far) {
      const double from_x = std::clamp((box[0] + box[2]) / 2, x, x + w), from_y = y < box[1] ? y + h : y;
      svg += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"1\"/>\n", from_x,
          from_y, std::clamp(from_x, box[0], box[2]), std::clamp(from_y, box[1], box[3]), colour);
    }
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" fill=\"{}\" "
        "fill-opacity=\"0.92\"/>\n<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" fill=\"{}\" "
        "font-weight=\"600\">{}</text>\n",
        x, y, w, h, colour, x + font_ * 0.35, y + font_ * 1.03, font_, ink_on(object.category),
        base::html_escape(texts[form]));
  }

  std::string svg;

 private:
  static constexpr size_t kCrowd = 10;  // from here labels are smaller

  CornerBox scaled(CornerBox box) const {
    for (double& side : box) side *= scale_;
    return box;
  }

  double scale_, font_ = 0, line_ = 0;
  LabelPlaces places_;
};

/// Width and height in the first tag of a picture.
std::pair<double, double> size_of(const std::string& picture) {
  const auto number = [&](std::string_view key) {
    const size_t at = picture.find(key);
    base::ensure(at != std::string::npos, "a picture without {}", key);
    return std::strtod(picture.c_str() + at + key.size(), nullptr);
  };
  return {number(" width=\""), number(" height=\"")};
}

}  // namespace

std::string mask_outline(const PixelBitmap& mask, double scale, double tolerance) {
  std::string path;
  for (const std::vector<Corner>& line : outlines(mask)) {
    // A closed line is cut at the point that is farthest from its first one.
    size_t far = 0;
    const auto distance = [&](size_t i) { return std::abs(line[i].x - line[0].x) + std::abs(line[i].y - line[0].y); };
    for (size_t i = 0; i < line.size(); ++i)
      if (distance(i) > distance(far)) far = i;
    std::vector<bool> kept(line.size());
    kept[0] = kept[far] = true;
    simplify(line, 0, far, tolerance, kept);
    simplify(line, far, line.size() - 1, tolerance, kept);
    const char* command = "M";
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      if (!kept[i]) continue;
      path += fmt::format("{}{:.1f} {:.1f}", command, static_cast<double>(line[i].x) * scale,
                          static_cast<double>(line[i].y) * scale);
      command = "L";
    }
    path += "Z";
  }
  return path;
}

std::string detection_svg(const Image& image, std::span<const DrawnObject> objects,
                          const DetectionPictureOptions& options) {
  const double largest = static_cast<double>(std::max(image.height, image.width));
  const double scale = std::min(1.0, static_cast<double>(options.max_side) / largest);
  const auto side = [&](int64_t pixels) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(pixels) * scale));
  };
  const int64_t height = side(image.height), width = side(image.width);
  const Image shown = scale < 1.0 ? resize(image, height, width, Interpolation::bicubic) : image;
  ObjectDrawing drawing(static_cast<double>(width), static_cast<double>(height), scale, objects);
  for (size_t i = objects.size(); i-- > 0;) drawing.outline(objects[i]);
  for (const DrawnObject& object : objects) drawing.label(object);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\">\n<image width=\"{0}\" height=\"{1}\" href=\"data:image/jpeg;base64,{2}\"/>\n{3}"
      "</svg>\n",
      width, height, base::to_base64(jpeg_bytes(shown, kQuality)), drawing.svg);
}

std::string side_by_side(const std::vector<std::string>& pictures) {
  if (pictures.empty()) return {};
  std::string cells;
  double y = 0, widest = 0;
  for (size_t first = 0; first < pictures.size(); first += kPicturesInRow) {
    double x = 0, tallest = 0;
    for (size_t i = first; i < std::min(pictures.size(), first + kPicturesInRow); ++i) {
      const auto [width, height] = size_of(pictures[i]);
      cells += fmt::format("<g transform=\"translate({:.0f} {:.0f})\">{}</g>\n", x, y, pictures[i]);
      x += width + kGap;
      tallest = std::max(tallest, height);
    }
    widest = std::max(widest, x - kGap);
    y += tallest + kGap;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "style=\"max-width:100%;height:auto\">\n{2}</svg>\n",
      widest, y - kGap, cells);
}

}  // namespace mnemo::data
