#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mnemo::data {

enum class Packing { none, gzip, zstd };

/// By the end of the name: ".gz", ".zst", anything else.
Packing packing_of(std::string_view path);

/// Calls `use` with the unpacked content, in order, piece by piece; several packed parts in a row are one
/// content. Throws InputError naming the file if it is damaged or truncated, and if more than 1 GB comes out that is
/// more than 200 times the file.
void unpack(const std::string& path, Packing packing, const std::function<void(std::string_view)>& use);

/// The size of the unpacked content, which is held nowhere. Errors as above.
uint64_t unpacked_size(const std::string& path, Packing packing);

}  // namespace mnemo::data
