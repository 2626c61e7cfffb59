#pragma once

#include <string>
#include <string_view>

namespace mnemo::inspect {

/// The picture as a PNG file of two dots a pixel (fewer where a side would pass 30,000 dots), on white. Letters are
/// those that fontconfig finds for their family. Throws InputError in a build without librsvg.
std::string png_of(std::string_view svg);

}  // namespace mnemo::inspect
