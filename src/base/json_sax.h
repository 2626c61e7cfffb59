#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"

namespace mnemo::base {

/// Reads the JSON of a file value by value. Throws InputError "WHERE: broken JSON at byte N".
class JsonSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonSax(std::string where) : where_(std::move(where)) {}

  bool binary(binary_t&) final { return false; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) final {
    // The library's message contains the last token read, which can be as long as the file.
    input_error("{}: broken JSON at byte {}: {}", where_, position, printable(json_parser_words(error.what()), 200));
  }

 protected:
  const std::string where_;
};

}  // namespace mnemo::base
