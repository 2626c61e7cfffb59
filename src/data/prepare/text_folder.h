#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// Every file below a folder, in the order of their names, as a text of documents; valid_fraction and test_fraction of
/// the bytes, the last ones, in whole documents. Hidden and empty files are left out, and files must be UTF-8.
DataSet text_folder();

}  // namespace mnemo::data
