#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion.h"

namespace mnemo::cli {
namespace {

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  return fmt::format("{}", fmt::join(words, between));
}

std::vector<std::string> names_of(const std::vector<CompletedOption>& options) {
  std::vector<std::string> names;
  for (const CompletedOption& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> names_of(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> names;
  for (const CompletedCommand& command : commands) names.push_back(command.name);
  return names;
}

/// In single quotes; `escaped` get a backslash.
std::string single_quoted(std::string_view text, std::string_view escaped = "") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += ' ';
    } else if (c == '\'') {
      out += "'\\''";
    } else {
      if (escaped.find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out + "'";
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

/// bash: values of an option or argument.
std::string bash_reply(const Values& values) {
  std::string reply;
  if (values.keys) return "COMPREPLY=($(compgen -S = -W \"$keys\" -- \"$word\")); compopt -o nospace 2>/dev/null";
  if (!values.words.empty()) reply = fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))", joined(values.words));
  if (values.files || values.folders) {
    reply += reply.empty() ? "" : "; ";
    // A line for each name: names may hold blanks.
    reply += fmt::format(
        "mapfile -t -O \"${{#COMPREPLY[@]}}\" COMPREPLY < <(compgen {} -- \"$word\"); compopt -o filenames 2>/dev/null",
        values.files ? "-f" : "-d");
  }
  return reply.empty() ? ":" : reply;
}

/// zsh: the action after a colon.
std::string zsh_action(const Values& values) {
  if (values.keys) return "_mnemo_keys";
  const char* files = values.files ? "_files" : values.folders ? "_files -/" : "";
  if (values.words.empty()) return *files == '\0' ? " " : files;
  if (*files == '\0') return "(" + joined(values.words) + ")";
  // With a blank before it _arguments adds no options of its own, which are not _alternative's.
  return fmt::format(" _alternative \"words:word:({})\" \"files:file:{}\"", joined(values.words), files);
}

std::string zsh_options(const std::vector<CompletedOption>& options) {
  std::string text;
  for (const CompletedOption& option : options) {
    for (const std::string& name : option.names) {
      // The description ends at a bracket, what it takes at a colon.
      const std::string about = single_quoted(option.about, "[]:\\");
      const std::string value = option.takes_value ? ":value:" + zsh_action(option.values) : "";
      text += fmt::format("    '*{}[{}]'{} \\\n", name, about.substr(1, about.size() - 2),
                          value.empty() ? "" : single_quoted(value));
    }
  }
  return text;
}

std::string fish_values(const Values& values) {
  if (values.keys) return " -x -a '(__mnemo_keys)'";
  std::string text = values.files || values.folders ? " -r" : " -x";
  if (values.files) text += " -F";
  std::vector<std::string> words = values.words;
  if (values.folders && !values.files) words.emplace_back("(__fish_complete_directories)");
  return words.empty() ? text : text + " -a " + fish_quoted(joined(words));
}

std::string fish_options(const std::vector<CompletedOption>& options, const std::string& when) {
  std::string text;
  for (const CompletedOption& option : options) {
    text += "complete -c mnemo -n " + fish_quoted(when);
    for (const std::string& name : option.names)
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (option.takes_value) text += fish_values(option.values);
    text += " -d " + fish_quoted(option.about) + "\n";
  }
  return text;
}

}  // namespace

std::string bash_completion(const Completion& completion) {
  std::string cases;
  for (const CompletedCommand& command : completion.commands) {
    std::string values;
    for (const CompletedOption& option : command.options) {
      if (option.takes_value)
        values += fmt::format("        {}) {}; return ;;\n", joined(option.names, "|"), bash_reply(option.values));
    }
    cases += fmt::format(
        "    {})\n      case \"$before\" in\n{}      esac\n      options=\"{}\"\n      [[ \"$word\" == -* ]] || {{ {}; "
        "}} ;;\n",
        command.name, values, joined(names_of(command.options)), bash_reply(command.values));
  }
  return fmt::format(R"(# bash completion of mnemo; load it with: source <(mnemo completion bash)
_mnemo() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" options=""
  local keys="{}"
  # --option=VALUE comes as three words.
  [ "$before" = "=" ] && before="${{COMP_WORDS[COMP_CWORD-2]}}"
  [ "$word" = "=" ] && word=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} {}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  fi
}}
complete -F _mnemo mnemo
)",
                     joined(completion.keys), joined(names_of(completion.commands)),
                     joined(names_of(completion.options)), cases);
}

std::string zsh_completion(const Completion& completion) {
  std::string commands, cases;
  for (const CompletedCommand& command : completion.commands) {
    commands += fmt::format("    {}\n", single_quoted(command.name + ":" + command.about));
    cases += fmt::format("    {})\n      _arguments \\\n{}        {} ;;\n", command.name, zsh_options(command.options),
                         single_quoted("*:argument:" + zsh_action(command.values)));
  }
  return fmt::format(R"(#compdef mnemo
# zsh completion of mnemo; put it as _mnemo in a folder of $fpath, or load it with: source <(mnemo completion zsh)
_mnemo_keys() {{
  local -a keys=({})
  compadd -S = -a keys
}}
_mnemo() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    if [[ "$words[2]" == -* ]]; then
      compadd -- {}
    else
      _describe command commands
    fi
    return
  fi
  local command="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$command" in
{}  esac
}}
if [[ "$funcstack[1]" == _mnemo ]]; then
  _mnemo "$@"
else
  compdef _mnemo mnemo
fi
)",
                     joined(completion.keys), commands, joined(names_of(completion.options)), cases);
}

std::string fish_completion(const Completion& completion) {
  std::string text = fmt::format(R"(# fish completion of mnemo; put it as mnemo.fish in ~/.config/fish/completions
function __mnemo_keys
  printf '%s=\n' {}
end
complete -c mnemo -f
)",
                                 joined(completion.keys));
  const std::string none = "__fish_use_subcommand";
  text += fish_options(completion.options, none);
  for (const CompletedCommand& command : completion.commands) {
    text += fmt::format("complete -c mnemo -n {} -a {} -d {}\n", fish_quoted(none), command.name,
                        fish_quoted(command.about));
    const std::string when = "__fish_seen_subcommand_from " + command.name;
    if (command.values.files || command.values.folders)
      text += fmt::format("complete -c mnemo -n {} -F\n", fish_quoted(when));
    if (!command.values.words.empty())
      text += fmt::format("complete -c mnemo -n {} -a {}\n", fish_quoted(when),
                          fish_quoted(joined(command.values.words)));
    text += fish_options(command.options, when);
  }
  return text;
}

}  // namespace mnemo::cli
