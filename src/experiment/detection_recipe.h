#pragma once

#include <string>

#include "bundle/bundle.h"
#include "recipes/recipe.h"

namespace mnemo::experiment {

/// A recipe whose held-out data (Part::valid) are annotated images at a path, read as the detector reads images, with
/// its classes. Throws InputError for a path of anything else.
recipes::Recipe detection_recipe(const bundle::Bundle& stored, const std::string& path);

}  // namespace mnemo::experiment
