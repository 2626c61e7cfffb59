#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "options_check.h"

/// A recipe: TOML, followed after a zero byte by assignments as for --set, one per line; read into options, or rejected
/// with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string_view assignments;
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    assignments = text.substr(zero + 1);
    text = text.substr(0, zero);
  }
  fuzz::only_input_errors([&] {
    base::Node root = base::parse_toml(text, "recipe.toml");
    for (int count = 0; !assignments.empty() && count < 16; ++count) {
      const size_t end = std::min(assignments.find('\n'), assignments.size());
      fuzz::only_input_errors([&] { base::set_value(root, assignments.substr(0, end)); });
      assignments.remove_prefix(std::min(end + 1, assignments.size()));
    }
    fuzz::check_options(root, size);
  });
  return 0;
}
