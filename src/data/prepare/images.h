#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// An image set that lies in a folder: it is listed and checked, and stays where it is.
DataSet image_folder();

}  // namespace mnemo::data
