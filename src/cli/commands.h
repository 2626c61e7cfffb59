#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace mnemo::cli {

/// Exit statuses; 130 and 143 are for a run that SIGINT or SIGTERM stopped.
inline constexpr int kDone = 0;
inline constexpr int kAnswerIsNo = 1;   ///< verify out of tolerance, a bar missed
inline constexpr int kWrongInput = 2;   ///< base::InputError
inline constexpr int kOwnFault = 3;     ///< everything else
inline constexpr int kInterrupted = 130;
inline constexpr int kTerminated = 143;

/// Sets what a subcommand does once the whole command line is read; it returns the exit status. Errors are thrown and
/// told in one place (app.cpp).
void set_action(CLI::App& command, std::function<int()> action);

// One function for each subcommand: each adds itself, its options and its action.
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_compare(CLI::App& app);
void add_generate(CLI::App& app);
void add_attach(CLI::App& app);
void add_finetune(CLI::App& app);
void add_detach(CLI::App& app);
void add_classify(CLI::App& app);
void add_inspect(CLI::App& app);
void add_convert(CLI::App& app);
void add_verify(CLI::App& app);
void add_data(CLI::App& app);
void add_bench(CLI::App& app);
void add_completion(CLI::App& app);
void add_help(CLI::App& app);

/// Reads the command line and carries it out. Returns the exit status; never throws.
int run(int argc, char** argv);

}  // namespace mnemo::cli
