#pragma once

#include <string>

namespace mnemo::cli {

/// Two settings of the whole process that decide its speed on some machines. Each is a build option (on by default) and
/// an environment variable of the same name that turns it off when it is 0:
///   MNEMO_MKL_OVERRIDE    MKL takes its fastest instructions on any CPU, not only on Intel's: the executable exports
///                         `mkl_serv_intel_cpu_true`, which MKL asks before it chooses
///   MNEMO_MALLOC_TUNING   freed blocks of up to 1 GiB stay in the process, so that a fresh large tensor does not cost
///                         page faults for all of its memory
struct ProcessSettings {
  bool mkl_override = false;   ///< active in this process
  bool malloc_tuning = false;  ///< active in this process
};

/// Applies the settings, and keeps the numbers of closed standard streams from other files; the first call of main,
/// before any large allocation and any matrix product.
/// Returns the active settings, as process_settings() does.
const ProcessSettings& apply_process_settings();

/// The active settings. All false until apply_process_settings() runs.
const ProcessSettings& process_settings();

/// One line for `mnemo --version`: "MKL override on, malloc tuning off (MNEMO_MALLOC_TUNING=0)".
std::string describe_process_settings();

}  // namespace mnemo::cli
