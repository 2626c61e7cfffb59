#pragma once

#include "base/registry.h"
#include "data/prepare/data_set.h"

namespace mnemo::data {

/// The data sets that `mnemo data prepare` supports, by name.
const base::Registry<DataSet>& data_sets();

}  // namespace mnemo::data
