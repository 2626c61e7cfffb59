#include <cstddef>
#include <cstdint>
#include <string_view>

#include "options_check.h"

/// A config.json: read into options, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  fuzz::only_input_errors([&] {
    const base::Node root = base::parse_json(text, "config.json");
    // Any JSON that was read can be written, and reads as the same.
    const std::string json = base::to_json(root);
    fuzz::demand(base::parse_json(json, "again") == root, "JSON again: " + json);
    fuzz::check_options(root, size);
  });
  return 0;
}
