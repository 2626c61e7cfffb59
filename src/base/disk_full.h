#pragma once

#include "base/error.h"

namespace mnemo::base {

/// A file could not be written for lack of space, which is no fault of the input. The command line exits with status 1.
class DiskFull : public InputError {
 public:
  using InputError::InputError;
};

/// Whether an error of the system (errno) means that: a full disk, a quota or a limit of file sizes.
bool is_disk_full(int error);

}  // namespace mnemo::base
