#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// Long ListOps in the arena's files: made from the options, or, where a folder is given, checked line by line.
DataSet listops();

}  // namespace mnemo::data
