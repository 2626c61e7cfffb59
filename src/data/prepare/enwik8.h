#pragma once

#include "data/prepare/data_set.h"

namespace mnemo::data {

/// enwik8 (the first 100,000,000 bytes of an English Wikipedia dump), or its first 4,000,000: split into exactly 90, 5
/// and 5 % of the bytes, in that order. Size and checksum must match the published file.
DataSet enwik8();

}  // namespace mnemo::data
