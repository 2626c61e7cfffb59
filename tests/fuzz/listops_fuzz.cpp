#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/answers/listops.h"
#include "options_check.h"

/// Lines of ListOps files in both formats: read into an expression, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    for (const bool value_first : {false, true}) {
      fuzz::only_input_errors([&] {
        const auto expression = data::parse_listops_line(line, {"file.tsv", number}, value_first);
        fuzz::demand(expression.value >= 0 && expression.value <= 9 && !expression.tokens.empty(),
                     "an expression's value");
        const std::string text = data::listops_text(expression.tokens);
        const auto again = data::parse_listops(text, {"again", 1});
        fuzz::demand(again.tokens == expression.tokens && again.value == expression.value,
                     "written and read again: " + text);
      });
    }
  }
  return 0;
}
