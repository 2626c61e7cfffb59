#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "../support/temporary_folder.h"
#include "data/answers/hyperpartisan.h"
#include "options_check.h"

/// Articles and their labels in XML, separated by the byte 0x1E: texts with labels, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const test::TemporaryFolder folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = std::min(input.find('\x1e'), input.size());
  const std::string articles = folder / "articles-x.xml";
  std::ofstream(articles, std::ios::binary) << input.substr(0, middle);
  std::ofstream(folder / "ground-truth-x.xml", std::ios::binary) << input.substr(std::min(middle + 1, input.size()));
  fuzz::only_input_errors([&] {
    for (const auto& text : data::read_hyperpartisan(articles).texts) {
      fuzz::demand(!base::first_invalid_utf8(text.first), "a text is UTF-8");
    }
  });
  return 0;
}
