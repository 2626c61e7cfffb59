#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace mnemo::cli {

/// Sets what a subcommand does once the whole command line is read; it returns the exit status. Errors are thrown and
/// told in one place (app.cpp).
void set_action(CLI::App& command, std::function<int()> action);

// One function for each subcommand: each adds itself, its options and its action.
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_compare(CLI::App& app);
void add_generate(CLI::App& app);
void add_serve(CLI::App& app);
void add_translate(CLI::App& app);
void add_attach(CLI::App& app);
void add_finetune(CLI::App& app);
void add_detach(CLI::App& app);
void add_classify(CLI::App& app);
void add_detect(CLI::App& app);
void add_inspect(CLI::App& app);
void add_convert(CLI::App& app);
void add_score(CLI::App& app);
void add_data(CLI::App& app);
void add_recipes(CLI::App& app);
void add_init(CLI::App& app);
void add_runs(CLI::App& app);
void add_completion(CLI::App& app);
void add_help(CLI::App& app);

}  // namespace mnemo::cli
