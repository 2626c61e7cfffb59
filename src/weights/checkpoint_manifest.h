#pragma once

#include <string>
#include <string_view>

#include "base/node.h"
#include "weights/checkpoint.h"

namespace mnemo::weights {

inline constexpr const char* kManifestName = "manifest.json";

/// A manifest of six files takes a kilobyte; this limit has room for more than a hundred files.
inline constexpr base::ReadLimits kManifestLimits{.max_bytes = size_t{32} << 10, .max_depth = 4};

/// The JSON text of the manifest. Throws InputError if it would exceed the size limit for reading.
std::string format_manifest(const CheckpointInfo& info);

/// Reads it back; `path` is the checkpoint folder. Throws InputError that names what is wrong.
CheckpointInfo parse_manifest(std::string_view text, const std::string& path);

}  // namespace mnemo::weights
