#pragma once

#include <string>

#include "data/images/image.h"

namespace mnemo::data {

/// An image as a JPEG file. quality: 1 to 100.
std::string jpeg_bytes(const Image& image, int quality);

}  // namespace mnemo::data
