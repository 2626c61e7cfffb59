#pragma once

#include <string>

namespace mnemo::base {

/// Settings of the whole process that decide its speed on some machines; nothing else of Mnemo belongs to the process.
/// Two are build options (on by default), and environment variables of the same name turn them off when they are 0:
///   MNEMO_MKL_OVERRIDE    MKL takes its fastest instructions on any CPU, not only on Intel's: a program that is linked
///                         with this exports `mkl_serv_intel_cpu_true`, which MKL asks before it chooses
///   MNEMO_MALLOC_TUNING   freed blocks of up to 1 GiB stay in the process, so that a fresh large tensor does not cost
///                         page faults for all of its memory
struct ProcessSettings {
  bool mkl_override = false;   ///< active in this process
  bool malloc_tuning = false;  ///< active in this process
};

/// Applies the settings; before any large allocation and any matrix product. Returns what is active.
const ProcessSettings& init_process();

/// One line for `mnemo --version`: "MKL override on, malloc tuning off (MNEMO_MALLOC_TUNING=0)".
std::string describe_process_settings();

/// The threads of libgomp spin for about 10 ms before they sleep: good if every core is free, but beside another
/// program they take the time of the thread they wait for. How long is read from the environment when libgomp is loaded
/// and cannot be changed later, so this starts the program again with GOMP_SPINCOUNT=1000, unless that or
/// OMP_WAIT_POLICY is set. Returns where that fails. It uses nothing that the start of other libraries sets up.
void spin_briefly(char** words, char** environment);

}  // namespace mnemo::base
