#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "data/detection/rle.h"
#include "options_check.h"

/// Height and width in two bytes each, then the text of a mask, and the same bytes as coordinates of a polygon: masks
/// of that size, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  if (size < 4) return 0;
  const std::int64_t height = data[0] | (data[1] & 3) << 8, width = data[2] | (data[3] & 3) << 8;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 4, size - 4);
  const auto check = [&](const data::Rle& mask) {
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width), 9);
    data::rle_decode(mask, pixels.data());
    std::int64_t area = 0;
    for (const std::uint8_t pixel : pixels) {
      fuzz::demand(pixel <= 1, "every pixel is written");
      area += pixel;
    }
    fuzz::demand(area == data::rle_area(mask), "the area");
    const data::Rle plain = data::rle_encode(pixels.data(), height, width);
    fuzz::demand(data::rle_parse(data::rle_text(plain), height, width, "again") == plain, "the text of a mask");
    fuzz::demand(data::rle_shared(mask, plain) == area, "shared with itself");
    fuzz::demand(data::rle_box(mask) == data::rle_box(plain), "the box");
  };
  fuzz::only_input_errors([&] { check(data::rle_parse(rest, height, width, "input")); });
  std::vector<double> points(rest.size() / 4);
  for (std::size_t i = 0; i < points.size(); ++i) {
    float value = 0;
    std::memcpy(&value, rest.data() + 4 * i, 4);
    points[i] = static_cast<double>(value);
  }
  fuzz::only_input_errors([&] { check(data::rle_of_polygon(points, height, width, "input")); });
  return 0;
}
