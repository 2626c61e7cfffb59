#pragma once

#include "base/random.h"

namespace mnemo::data {

using base::Random;

}  // namespace mnemo::data
