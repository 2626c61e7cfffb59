#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "../support/temporary_folder.h"
#include "data/images/image_layout.h"
#include "options_check.h"

/// Files of images and of labels, the second behind as many bytes as the first byte says: as many labels as images, all
/// of which can be read, or an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const test::TemporaryFolder folder;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t middle = std::min<std::size_t>(data[0], input.size());
  data::ImageOptions options;
  options.train = folder / "train-images-idx3-ubyte";
  std::ofstream(options.train, std::ios::binary) << input.substr(0, middle);
  std::ofstream(folder / "train-labels-idx1-ubyte", std::ios::binary) << input.substr(middle);
  fuzz::only_input_errors([&] {
    const data::FoundImages found = data::find_idx(options).train;
    fuzz::demand(found.source->size() == static_cast<std::int64_t>(found.labels.size()), "a label for each image");
    for (std::int64_t i = 0; i < std::min<std::int64_t>(found.source->size(), 4); ++i) {
      const auto image = found.source->read(i);
      fuzz::demand(static_cast<std::int64_t>(image->bytes.size()) == image->height * image->width * 3, "an image");
    }
  });
  return 0;
}
