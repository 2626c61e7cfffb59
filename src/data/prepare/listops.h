#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// Long ListOps in the format of the Long Range Arena: generated from the options, or checked line by line if a folder
/// is given.
DataSet listops();

}  // namespace mnemo::data
