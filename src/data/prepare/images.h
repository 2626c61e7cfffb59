#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// An image set in a folder: it is listed and checked, but not copied.
DataSet image_folder();

}  // namespace mnemo::data
