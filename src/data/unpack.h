#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace mnemo::data {

enum class Packing { none, gzip, zstd };

/// By the end of the name: ".gz", ".zst", anything else.
Packing packing_of(std::string_view path);

/// Calls `use` with the unpacked content, in order, piece by piece; several packed parts in a row are one
/// content. Throws InputError naming the file if it is damaged or truncated.
void unpack(const std::string& path, Packing packing, const std::function<void(std::string_view)>& use);

}  // namespace mnemo::data
