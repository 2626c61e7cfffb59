#include "cli/application.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <unistd.h>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <set>
#include <utility>

#include "base/colour.h"
#include "base/disk_full.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/stop.h"
#include "base/synonyms.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "distributed/group.h"
#include "recipes/recipe.h"

namespace mnemo::cli {
namespace {

std::function<int()> chosen_action;

/// Help whose descriptions are wrapped to the terminal; of 100 columns where there is none.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    const size_t columns = base::terminal_columns(), room = std::max<size_t>(columns > 0 ? columns : 100, 60);
    return fmt::format(
        "{}", fmt::join(base::wrap_words(CLI::Formatter::make_option_desc(option), room - get_column_width()), "\n"));
  }

  /// CLI11 writes an empty line more where the last option is hidden.
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    base::replace_all(text, "\n\n\n", "\n\n");
    return text;
  }
};

constexpr std::array<std::string_view, 3> kOutOfMemory = {"not enough memory", "can't allocate memory",
                                                          "out of memory"};

void tell(std::string_view text) {
  base::set_status_line("");
  const std::string line = fmt::format(
      "mnemo: {} {}\n", base::styled("error:", base::kErrorStyle, base::is_coloured(STDERR_FILENO)), text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// Names that may stand where an unknown word stood.
std::vector<std::string> known_words(const CLI::App& app, bool options) {
  std::vector<std::string> words;
  if (options) {
    for (const CLI::Option* option :
         app.get_options([](const CLI::Option* shown) { return !shown->get_group().empty(); })) {
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
    return words;
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    words.push_back(command->get_name());
  }
  return words;
}

/// The subcommand that was given, or the application.
const CLI::App& parsed_command(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.front();
}

/// The parser's "Could not convert: --json = abc" of a flag as "--json: expected no value, found 'abc'"; other words as
/// they are.
std::string conversion_text(std::string_view words) {
  constexpr std::string_view kStart = "Could not convert: ";
  const size_t equals = words.find(" = ");
  if (!words.starts_with(kStart) || equals == std::string_view::npos) return base::printable(words, 500);
  return fmt::format("{}: expected no value, found '{}'", words.substr(kStart.size(), equals - kStart.size()),
                     base::printable(words.substr(equals + 3), 200));
}

/// The key of a recipe that `--lr` or `--batch-size` stands for; nothing if it is none.
std::optional<std::string> recipe_key(std::string_view option) {
  std::string name(option.substr(std::min(option.find_first_not_of('-'), option.size())));
  std::replace(name.begin(), name.end(), '-', '_');
  if (const std::optional<std::string> key = base::key_called(name); key && !key->starts_with("--")) return key;
  for (const base::OptionDoc& doc : recipes::recipe_docs()) {
    if (doc.path == "train." + name || doc.path == name) return doc.path;
  }
  return std::nullopt;
}

/// The end of the message about an unknown word of a command: what may have been meant.
std::string remedy(const CLI::App& command, const std::string& word, bool is_option) {
  const std::string name = word.substr(0, word.find('='));
  const auto takes = [&](const char* option) { return command.get_option_no_throw(option) != nullptr; };
  if (is_option && takes("--set")) {
    if (const std::optional<std::string> key = recipe_key(name))
      return fmt::format("; a key of the recipe is set with --set {}={}", *key,
                         word.size() > name.size() ? word.substr(name.size() + 1) : "VALUE");
  }
  if (!is_option && takes("--data") && base::path_exists(word))
    return fmt::format("; data are given as --data {}", base::shell_quoted(word));
  if (!is_option && takes("--prompt"))
    return fmt::format("; a text is given as --prompt {}", base::shell_quoted(base::printable(word)));
  const bool may_suggest = is_option || command.get_parent() == nullptr;
  return may_suggest ? base::suggestion(name, known_words(command, is_option)) : std::string();
}

std::string explain(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App& command = parsed_command(app);
  const std::vector<std::string> left = command.remaining();
  const std::string where = &command == &app ? "" : fmt::format("{}: ", command.get_name());
  const bool of_words = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                        dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (!of_words) return where + conversion_text(error.what());
  if (left.empty()) return &command == &app ? "expected a subcommand" : where + base::printable(error.what(), 500);
  const std::string& word = left.front();
  const bool is_option = word.starts_with("-");
  const std::string what = is_option ? "option" : &command == &app ? "subcommand" : "argument";
  return fmt::format("{}unknown {} '{}'{}", where, what, base::printable(word), remedy(command, word, is_option));
}

int refuse(const CLI::ParseError& error, const CLI::App& app) {
  const CLI::App& command = parsed_command(app);
  tell(explain(error, app));
  const std::string name = &command == &app ? "" : " " + command.get_name();
  const std::string hint = fmt::format("try: {}{} --help\n", app.get_name(), name);
  std::fwrite(hint.data(), 1, hint.size(), stderr);
  return base::kWrongInput;
}

/// LibTorch has no type for it on the CPU: its own words, those of Linux's allocator, and CUDA's.
bool is_out_of_memory(const c10::Error& error) {
  const std::string_view words = error.what_without_backtrace();
  return std::any_of(kOutOfMemory.begin(), kOutOfMemory.end(),
                     [&](std::string_view part) { return words.find(part) != std::string_view::npos; });
}

int out_of_memory() {
  tell(
      "out of memory: use a smaller batch_size (with accumulate a step stays the same), segment_size, image_size or "
      "model");
  return base::kWrongInput;
}

int parse_and_act(int argc, char** argv, const std::shared_ptr<CLI::App>& app) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    base::print(app->help());
    return base::kDone;
  } catch (const CLI::CallForVersion&) {
    base::print(version_text());
    return base::kDone;
  } catch (const CLI::ParseError& error) {
    return refuse(error, *app);
  }
  if (common_options().quiet) base::set_log_level(base::LogLevel::warning);
  if (common_options().threads > 0) at::set_num_threads(static_cast<int>(common_options().threads));
  base::ensure(chosen_action != nullptr, "a subcommand has no action");
  return chosen_action();
}

}  // namespace

Common& common_options() {
  static Common common;
  return common;
}

int64_t choose_threads(int64_t parameters, int64_t rows) {
  constexpr double kWorthSharing = 1e9;  // multiplications and additions
  const bool chosen = common_options().threads > 0 || std::getenv("OMP_NUM_THREADS") != nullptr;
  if (!chosen && 2.0 * static_cast<double>(parameters) * static_cast<double>(rows) < kWorthSharing)
    at::set_num_threads(1);
  return at::get_num_threads();
}

void set_action(CLI::App& command, std::function<int()> action) {
  command.callback([action = std::move(action)] { chosen_action = action; });
}

std::shared_ptr<CLI::App> make_application() {
  auto app = std::make_shared<CLI::App>("Train, compare, inspect and run transformers with memory.", "mnemo");
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_version_flag("--version", "");
  app->require_subcommand(1);
  add_train(*app);
  add_eval(*app);
  add_compare(*app);
  add_generate(*app);
  add_serve(*app);
  add_translate(*app);
  add_finetune(*app);
  add_attach(*app);
  add_detach(*app);
  add_classify(*app);
  add_detect(*app);
  add_inspect(*app);
  add_convert(*app);
  add_score(*app);
  add_data(*app);
  add_recipes(*app);
  add_init(*app);
  add_runs(*app);
  add_completion(*app);
  add_help(*app);
  app->footer(
      "Examples:  mnemo compare demo\n           mnemo train text --data my.txt --out "
      "runs/mine\n           mnemo help recipe");
  return app;
}

namespace {

/// Whether `mnemo help recipe WORD` finds a key.
bool is_in_recipes(const std::string& word) {
  try {
    recipes::find_recipe_docs({word});
  } catch (const base::InputError&) {
    return false;
  }
  return true;
}

}  // namespace

std::string help_text(const std::string& command) {
  const std::shared_ptr<CLI::App> app = make_application();
  if (command.empty()) return app->help();
  for (const CLI::App* sub : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == command) return sub->help("mnemo");
  }
  std::vector<std::string> known = known_words(*app, false);
  for (const char* subject : {"recipe", "presets", "man"}) known.emplace_back(subject);
  const bool of_keys = !base::nearest(command, known) && is_in_recipes(command);
  base::input_error("help: unknown subject '{}'{}", base::printable(command),
                    of_keys ? "; keys of a recipe: mnemo help recipe " + base::shell_quoted(command)
                            : base::suggestion(command, known));
}

int run(int argc, char** argv, const std::function<std::shared_ptr<CLI::App>()>& make) {
  // A closed pipe, and a file beyond a limit of its size, show as errors of the write, so that a training does not die
  // of a closed terminal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return parse_and_act(argc, argv, make());
  } catch (const base::OutputClosed&) {
    return base::kDone;
  } catch (const base::Stopped& stopped) {
    base::log_warning("{}", stopped.what());
    return base::stopped_by(stopped.reason());
  } catch (const distributed::RankFailure& error) {
    tell(error.what());
    return base::kAnswerIsNo;
  } catch (const base::NotFinite& error) {
    tell(error.what());
    return base::kAnswerIsNo;
  } catch (const base::DiskFull& error) {
    tell(error.what());
    return base::kAnswerIsNo;
  } catch (const base::InputError& error) {
    tell(error.what());
    return base::kWrongInput;
  } catch (const base::InternalError& error) {
    tell(fmt::format("internal: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const c10::Error& error) {
    if (is_out_of_memory(error)) return out_of_memory();
    tell(fmt::format("internal: {}", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    tell(fmt::format("internal: {}", error.what()));
  }
  return base::kOwnFault;
}

}  // namespace mnemo::cli
