#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/detection/voc.h"
#include "options_check.h"

/// Any bytes: an annotation file of Pascal VOC, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const data::VocCorners corners : {data::VocCorners::pixels, data::VocCorners::edges}) {
    fuzz::only_input_errors([&] {
      const data::VocFile file = data::parse_voc(input, "input", corners);
      fuzz::demand(file.height > 0 && file.width > 0 && file.height * file.width <= data::kMaxMaskPixels, "a size");
      for (const data::VocObject& object : file.objects) fuzz::demand(!object.name.empty(), "a name");
    });
  }
  return 0;
}
