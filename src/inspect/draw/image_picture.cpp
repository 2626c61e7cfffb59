#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "inspect/image_attention.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

constexpr double kPanel = 112;  // longer side of one picture
constexpr double kPanelTitle = 18, kSmallLine = 10, kPanelGap = 22;
constexpr double kStripCell = 8;     // largest size of a memory token
constexpr int64_t kPanelDots = 224;  // longer side
constexpr double kLineWidth = 1010;  // panels wrap at this width
constexpr Colour kSmall{0x5b, 0x68, 0x78}, kBoxColour{0xe6, 0x3e, 0x1a};

/// From dark blue (small weight) to yellow (largest): three colours that also differ when printed in grey.
Colour heat(double part) {
  constexpr std::array<std::array<double, 3>, 4> kStops = {
      {{0x0d, 0x08, 0x87}, {0x9c, 0x17, 0x9e}, {0xed, 0x79, 0x53}, {0xf0, 0xf9, 0x21}}};
  const double at = std::clamp(part, 0.0, 1.0) * (kStops.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kStops.size() - 2);
  const double rest = at - static_cast<double>(low);
  const auto mix = [&](size_t c) {
    return static_cast<uint8_t>(std::lround(kStops[low][c] + rest * (kStops[low + 1][c] - kStops[low][c])));
  };
  return {mix(0), mix(1), mix(2)};
}

/// The colours of the weights from 0 to the largest.
Raster heat_scale() {
  constexpr int64_t kDots = 28;
  Raster raster{kDots, 2, {}};
  for (int64_t i = 0; i < 2 * kDots; ++i)
    raster.dots.push_back(heat(std::sqrt(static_cast<double>(i % kDots) / (kDots - 1))));
  return raster;
}

/// The picture in its own resolution; large ones are subsampled, small ones enlarged by repetition.
Raster raster_of(const data::Image& image) {
  const int64_t longest = std::max(image.height, image.width);
  Raster raster{std::max<int64_t>(1, image.width * kPanelDots / longest),
                std::max<int64_t>(1, image.height * kPanelDots / longest),
                {}};
  raster.dots.resize(static_cast<size_t>(raster.width * raster.height));
  for (int64_t y = 0; y < raster.height; ++y) {
    for (int64_t x = 0; x < raster.width; ++x) {
      const uint8_t* dot = image.at(y * image.height / raster.height, x * image.width / raster.width);
      raster.at(x, y) = {dot[0], dot[1], dot[2]};
    }
  }
  return raster;
}

/// Weights [h,w] as a heat map over the picture in grey; the square root makes small ones visible.
Raster heated(const Raster& picture, const at::Tensor& weights) {
  Raster raster = picture;
  const int64_t height = weights.size(0), width = weights.size(1);
  const double largest = weights.max().item<double>();
  const double* data = weights.const_data_ptr<double>();
  for (int64_t y = 0; y < raster.height; ++y) {
    for (int64_t x = 0; x < raster.width; ++x) {
      const double weight = data[y * height / raster.height * width + x * width / raster.width];
      const double part = largest > 0 ? std::sqrt(std::clamp(weight / largest, 0.0, 1.0)) : 0.0;
      const Colour seen = picture.at(x, y), over = heat(part);
      const double grey = 0.299 * seen.red + 0.587 * seen.green + 0.114 * seen.blue, cover = 0.45 + 0.25 * part;
      const auto mix = [&](uint8_t colour) {
        return static_cast<uint8_t>(std::lround((1 - cover) * grey + cover * colour));
      };
      raster.at(x, y) = {mix(over.red), mix(over.green), mix(over.blue)};
    }
  }
  return raster;
}

/// Weights [m] of memory tokens on the same scale as the picture above them, in rows no wider than it.
Raster strip(const at::Tensor& weights, double largest) {
  const auto in_a_row = static_cast<int64_t>(kPanel / kStripCell);
  Raster raster{std::min<int64_t>(weights.size(0), in_a_row), (weights.size(0) + in_a_row - 1) / in_a_row, {}};
  for (int64_t i = 0; i < raster.width * raster.height; ++i) {
    const bool real = i < weights.size(0);
    raster.dots.push_back(real ? heat(largest > 0 ? std::sqrt(weights.const_data_ptr<double>()[i] / largest) : 0.0)
                               : Colour{0xff, 0xff, 0xff});
  }
  return raster;
}

/// The least and the largest value of a map.
struct Extremes {
  double low, high;
  /// Where values differ by less, a map in full contrast would show noise.
  bool is_flat() const { return high - low < 1e-3 * std::abs(low + high) / 2; }
  /// With so many digits that the two differ.
  std::string text() const {
    const double most = std::max(std::abs(low), std::abs(high));
    const int digits = high > low ? std::clamp(2 + static_cast<int>(std::log10(most / (high - low))), 2, 12) : 2;
    return fmt::format("{:.{}g} to {:.{}g}{}", low, digits, high, digits, is_flat() ? ", flat" : "");
  }
};

Extremes extremes_of(const at::Tensor& map) { return {map.min().item<double>(), map.max().item<double>()}; }

/// Values [h,w] in grey, from black (smallest) to white (largest); a flat map in one grey.
Raster grey(const at::Tensor& values) {
  const at::Tensor means = values.contiguous();
  const Extremes spread = extremes_of(means);
  Raster raster{means.size(1), means.size(0), {}};
  for (int64_t i = 0; i < means.numel(); ++i) {
    const double above = means.const_data_ptr<double>()[i] - spread.low;
    const double part = spread.is_flat() || spread.high <= spread.low ? 0.5 : above / (spread.high - spread.low);
    const auto shade = static_cast<uint8_t>(std::lround(255 * part));
    raster.dots.push_back({shade, shade, shade});
  }
  return raster;
}

/// The box of an object, as parts of the picture's sides, and its number.
struct Frame {
  std::array<double, 4> box;
  std::string number;
};

std::vector<Frame> frames_of(const ImageAttention& facts) {
  std::vector<Frame> frames;
  const auto height = static_cast<double>(facts.picture.height), width = static_cast<double>(facts.picture.width);
  for (const SeenObject& object : facts.objects) {
    const auto [left, top, right, bottom] = object.shown;
    frames.push_back({{left / width, top / height, right / width, bottom / height}, std::to_string(frames.size() + 1)});
  }
  return frames;
}

/// Panels side by side, in lines.
class PanelLines {
 public:
  PanelLines(Canvas& canvas, double left, double top) : canvas_(canvas), left_(left), x_(left), y_(top), right_(left) {}

  void caption(const std::string& text) {
    end_line();
    canvas_.text(left_, y_ + 14, text, 12);
    widen(left_, text, 12);
    y_ += 24;
  }
  /// The colours from 0 to the largest weight, which each panel names.
  void scale(const Raster& colours) {
    constexpr double kDot = 4;
    const double end = left_ + 8 + kDot * static_cast<double>(colours.width);
    canvas_.text(left_, y_ + 8, "0", 8, Anchor::left, kSmall);
    canvas_.cells(left_ + 8, y_ + 1, kDot, colours);
    canvas_.text(end + 4, y_ + 8, "most", 8, Anchor::left, kSmall);
    y_ += 16;
  }
  /// `strips` appear below the raster, each under its name.
  void panel(const std::string& title, const std::vector<std::string>& small, const Raster& raster,
             const std::vector<std::pair<std::string, Raster>>& strips = {}, const std::vector<Frame>& frames = {}) {
    const double cell = kPanel / static_cast<double>(std::max(raster.width, raster.height));
    if (x_ > left_ && x_ + kPanel > left_ + kLineWidth) end_line();
    canvas_.text(x_, y_ + 11, title, 10);
    widen(x_, title, 10);
    double y = y_ + kPanelTitle;
    const auto write = [&](const std::string& text) {
      canvas_.text(x_, y + 6, text, 8, Anchor::left, kSmall);
      widen(x_, text, 8);
      y += kSmallLine;
    };
    for (const std::string& line : small) write(line);
    canvas_.cells(x_, y, cell, raster);
    for (const Frame& frame : frames) {
      const auto at = [&](double x_part, double y_part) {
        return Canvas::Point{x_ + x_part * cell * static_cast<double>(raster.width),
                             y + y_part * cell * static_cast<double>(raster.height)};
      };
      const auto [left, top, right, bottom] = frame.box;
      canvas_.line({at(left, top), at(right, top), at(right, bottom), at(left, bottom), at(left, top)}, kBoxColour, 1);
      canvas_.text(at(left, top).x + 2, at(left, top).y + 7, frame.number, 7, Anchor::left, kBoxColour);
    }
    y += cell * static_cast<double>(raster.height);
    for (const auto& [name, cells] : strips) {
      y += 4;
      write(name);
      canvas_.cells(x_, y, kStripCell, cells);
      y += kStripCell * static_cast<double>(cells.height);
    }
    lowest_ = std::max(lowest_, y - y_);
    x_ += kPanel + kPanelGap;
    right_ = std::max(right_, x_);
  }
  void end_line() {
    if (lowest_ > 0) y_ += lowest_ + kPanelGap;
    x_ = left_;
    lowest_ = 0;
  }
  double right() const { return right_; }
  double bottom() const { return y_; }

 private:
  void widen(double x, const std::string& text, double size) { right_ = std::max(right_, x + width_of(text, size)); }

  Canvas& canvas_;
  double left_, x_, y_, right_, lowest_ = 0;
};

/// With masked tasks, no task attends to the memory of another.
bool is_seen(const at::Tensor& memory) { return memory.max().item<double>() > 0; }

bool sees_memory(const inspect::ImageLook& look) {
  return std::any_of(look.memory.begin(), look.memory.end(), [](const auto& one) { return is_seen(one.second); });
}

void draw_looks(PanelLines& lines, const ImageAttention& facts, const Raster& picture, const std::string& from) {
  const bool any_memory = std::any_of(facts.layers.begin(), facts.layers.end(), [&](const inspect::ImageLayer& layer) {
    return std::any_of(layer.looks.begin(), layer.looks.end(),
                       [&](const inspect::ImageLook& look) { return look.from == from && sees_memory(look); });
  });
  lines.caption(fmt::format("attention from {}: bright means large (square root, each map on its own scale){}", from,
                            any_memory ? "; cells below: memory tokens, on the picture's scale" : ""));
  lines.scale(heat_scale());
  for (const inspect::ImageLayer& layer : facts.layers) {
    for (const inspect::ImageLook& look : layer.looks) {
      if (look.from != from) continue;
      const auto memory = std::find_if(look.beside.begin(), look.beside.end(),
                                       [](const auto& one) { return one.first == "memory"; });
      const auto draw = [&](int64_t head) {
        const at::Tensor weights = of_head(look.weights, head);
        const double most = weights.max().item<double>();
        std::vector<std::string> small = {"most " + page::share_text(most)};
        if (memory != look.beside.end())
          small.push_back("memory " + page::share_text(of_head(memory->second, head).item<double>()));
        std::vector<std::pair<std::string, Raster>> strips;
        for (const auto& [task, tokens] : look.memory) {
          const at::Tensor own = of_head(tokens, head);
          if (is_seen(own)) strips.emplace_back(task, strip(own, most));
        }
        lines.panel(fmt::format("layer {} {}", layer.layer, head < 0 ? "mean" : fmt::format("head {}", head)), small,
                    heated(picture, weights), strips);
      };
      draw(-1);
      for (const int64_t head : facts.heads) {
        if (head < look.weights.size(0)) draw(head);
      }
      if (!facts.heads.empty()) lines.end_line();
    }
  }
}

void draw_branches(PanelLines& lines, const ImageAttention& facts) {
  bool first = true;
  for (const inspect::ImageLayer& layer : facts.layers) {
    if (first && !layer.branches.empty())
      lines.caption(
          "mean over channels of the outputs of self-attention (o_self) and of the cache (o_mem): dark means small; "
          "share: of the output");
    first &= layer.branches.empty();
    for (const inspect::ImageBranch& branch : layer.branches) {
      std::vector<std::string> small = {extremes_of(branch.means).text()};
      if (branch.shares.defined()) small.push_back("share " + page::share_text(branch.shares.mean().item<double>()));
      lines.panel(fmt::format("layer {} {}", layer.layer, branch.name), small, grey(branch.means), {},
                  frames_of(facts));
    }
  }
}

}  // namespace

Canvas::Point draw_image_attention(Canvas& canvas, const ImageAttention& facts, double left, double top) {
  PanelLines lines(canvas, left, top);
  const Raster picture = raster_of(facts.picture);
  std::vector<std::string> seen = {fmt::format("{} x {}", facts.picture.height, facts.picture.width)};
  for (size_t i = 0; i < facts.objects.size(); ++i)
    seen.push_back(fmt::format("{} {} {}", i + 1, facts.objects[i].label, page::share_text(facts.objects[i].score)));
  lines.panel("the image", seen, picture, {}, frames_of(facts));
  std::vector<std::string> kinds;
  for (const inspect::ImageLayer& layer : facts.layers) {
    for (const inspect::ImageLook& look : layer.looks) {
      if (std::find(kinds.begin(), kinds.end(), look.from) == kinds.end()) kinds.push_back(look.from);
    }
  }
  for (const std::string& from : kinds) draw_looks(lines, facts, picture, from);
  draw_branches(lines, facts);
  lines.end_line();
  return {lines.right(), lines.bottom()};
}

}  // namespace mnemo::inspect
