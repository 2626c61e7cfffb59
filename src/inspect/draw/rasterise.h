#pragma once

#include <string>
#include <string_view>

namespace mnemo::inspect {

/// Renders the SVG as a PNG file with two dots per pixel (fewer if a side would exceed 30,000 dots) on white. Letters
/// use the font that fontconfig finds for their family. Throws InputError in a build without librsvg.
std::string png_of(std::string_view svg);

}  // namespace mnemo::inspect
