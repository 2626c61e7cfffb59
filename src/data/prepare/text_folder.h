#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// All files below a folder, sorted by name, as a text of documents. The last valid_fraction and test_fraction of the
/// bytes, in whole documents, are the other parts. Hidden and empty files are skipped; files must be UTF-8.
DataSet text_folder();

}  // namespace mnemo::data
