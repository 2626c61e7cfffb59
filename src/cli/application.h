#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/commands.h"

namespace mnemo::cli {

/// Options that every subcommand has.
struct Common {
  int64_t threads = 0;  ///< 0: LibTorch decides
  bool quiet = false;
};
Common& common_options();

/// Where neither --threads nor OMP_NUM_THREADS says how many: one thread if a call of the model is too little work to
/// share (starting and joining threads would take longer), else LibTorch's choice. Returns the number.
///   parameters: of the model; rows: token rows of one call
int64_t choose_threads(int64_t parameters, int64_t rows);

/// The whole command line: every subcommand added. Fresh for each call.
std::shared_ptr<CLI::App> make_application();

/// Reads the command line of the program that `make` builds, and carries it out. Returns the exit status; never throws.
int run(int argc, char** argv, const std::function<std::shared_ptr<CLI::App>()>& make);

/// The help text of a subcommand, or of the whole for an empty name. Throws InputError for an unknown one.
std::string help_text(const std::string& command);

/// Text of `mnemo --version`: versions of Mnemo and LibTorch, CPU features, process settings, threads.
std::string version_text();

}  // namespace mnemo::cli
