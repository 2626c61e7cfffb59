#pragma once

#include <string>
#include <string_view>

#include "weights/checkpoint.h"

namespace mnemo::weights {

inline constexpr const char* kManifestName = "manifest.json";

/// The manifest's JSON text.
std::string format_manifest(const CheckpointInfo& info);

/// Reads it back; `path` is the checkpoint's folder. Throws InputError naming what is wrong.
CheckpointInfo parse_manifest(std::string_view text, const std::string& path);

/// `step-00000042`, and back: -1 for any other name.
std::string checkpoint_name(int64_t step);
int64_t checkpoint_step(std::string_view name);

}  // namespace mnemo::weights
