#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/machine.h"
#include "cli/completion.h"

namespace mnemo::cli {
namespace {

/// Text of troff: a backslash, a dash and a dot that starts a line mean something to it.
std::string troff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (out.empty() || out.back() == '\n') {
      if (c == '.' || c == '\'') out += "\\&";
    }
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_list(const std::vector<CompletedOption>& options) {
  std::string text;
  for (const CompletedOption& option : options) {
    text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", troff(fmt::format("{}", fmt::join(option.names, ", "))),
                        option.takes_value ? " \\fI" + troff(option.kind) + "\\fR" : "", troff(option.about));
  }
  return text;
}

/// Arguments without a name; [MODEL] may be left out, "FILE ..." given several times.
std::string argument_list(const std::vector<CompletedArgument>& arguments) {
  std::string text;
  for (const CompletedArgument& argument : arguments) {
    const std::string name = "\\fI" + troff(argument.name) + "\\fR" + (argument.many ? " ..." : "");
    text += fmt::format(".TP\n{}\n{}\n", argument.required ? name : "[" + name + "]", troff(argument.about));
  }
  return text;
}

}  // namespace

std::string manual_page(const Completion& completion) {
  std::string text = fmt::format(
      ".TH MNEMO 1 \"\" \"mnemo {}\" \"User Commands\"\n.SH NAME\nmnemo \\- train, compare, inspect and run "
      "transformers with memory\n.SH SYNOPSIS\n.B mnemo\n.I SUBCOMMAND\n[\\fIOPTION\\fR]... "
      "[\\fIARGUMENT\\fR]...\n.SH DESCRIPTION\nA recipe (TOML) says what is trained on which data; "
      "\\fBmnemo recipes\\fR lists those that come with the program, which are taken by name, and \\fBmnemo help "
      "recipe\\fR explains every key. A training leaves a run folder with a model that the other subcommands read.\n",
      base::this_machine().mnemo);
  text += option_list(completion.options);
  text += ".SH SUBCOMMANDS\n";
  for (const CompletedCommand& command : completion.commands) {
    text += fmt::format(".SS mnemo {}\n{}\n{}{}", troff(command.name), troff(command.about),
                        argument_list(command.arguments), option_list(command.options));
  }
  return text + R"(.SH ENVIRONMENT
.TP
.B OMP_NUM_THREADS
Threads for one operation, unless \fB\-\-threads\fR says how many.
.TP
.BR GOMP_SPINCOUNT ", " OMP_WAIT_POLICY
How long threads spin while they wait for work. If neither is set, the program chooses a short spin.
.TP
.BR MNEMO_MKL_OVERRIDE ", " MNEMO_MALLOC_TUNING
0 turns off a setting that \fBmnemo \-\-version\fR shows.
.SH EXIT STATUS
0 success, 1 a check failed or a result is not finite, 2 invalid input, 3 internal error, 130 or 143 stopped by a signal after saving.
.SH EXAMPLES
.nf
mnemo train text \-\-data my.txt \-\-out runs/mine
mnemo generate runs/mine \-\-prompt 'Once upon a time'
mnemo compare demo
.fi
)";
}

}  // namespace mnemo::cli
