#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// The shortest text that reads back as the same double, always with a point or an exponent: "1.0", "1e-05", "nan".
std::string format_real(double value);

/// A JSON string, quotes included; also a valid TOML basic string. Throws InputError when `text` is not valid UTF-8.
std::string json_string(std::string_view text);

/// A TOML key: bare if possible, quoted otherwise.
std::string toml_key(std::string_view key);

/// Replaces every `from`, from left to right; time linear in the text and the result.
void replace_all(std::string& text, std::string_view from, std::string_view to);

/// "12,345"
std::string grouped(int64_t value);

/// "1 token", "12,345 tokens"
std::string counted(int64_t count, std::string_view noun);

/// "a, b and 3 more": `most` names at most.
std::string listed(std::vector<std::string> names, size_t most);

/// Quotes a word for the shell if necessary.
std::string shell_quoted(const std::string& word);

}  // namespace mnemo::base
