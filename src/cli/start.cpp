// The program that users start. It answers what depends on the build alone, and `--version`, from a file that the whole
// program wrote then, and lists runs; for all else it becomes the whole program, which stands beside it and takes 0.2 s
// to load LibTorch's 64 libraries. The process stays the same one, so signals, locks and exit statuses are the whole
// program's.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/terminal_width.h"
#include "base/version.h"
#include "cli/recipe_folder.h"
#include "cli/run_table.h"
#include "cli/version_text.h"

namespace {

/// The content of a file; empty if it cannot be read.
std::string content_of(const std::string& path) {
  std::string content;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return content;
  char part[1 << 16];
  for (ssize_t got = 0; (got = read(file, part, sizeof(part))) > 0;) content.append(part, static_cast<size_t>(got));
  close(file);
  return content;
}

std::optional<std::string_view> find_answer(std::string_view answers, std::string_view words) {
  for (size_t at = 0; at < answers.size();) {
    const size_t end = answers.find('\n', at), start = answers.find('\n', end + 1);
    if (end == answers.npos || start == answers.npos) break;
    const size_t length = std::strtoull(answers.data() + end + 1, nullptr, 10);
    if (length > answers.size() - start - 1) break;
    if (answers.substr(at, end - at) == words) return answers.substr(start + 1, length);
    at = start + 1 + length;
  }
  return std::nullopt;
}

/// Whether the lines do not fit into the terminal that they are for.
bool is_too_wide(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 1) return false;
  const auto columns = static_cast<size_t>(mnemo::base::terminal_width());
  for (std::string_view left = text; !left.empty();) {
    const size_t end = std::min(left.find('\n'), left.size());
    if (end > columns) return true;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return false;
}

/// The instruction set that LibTorch chooses; nothing where that is not plain.
std::string libtorch_capability() {
#ifdef __x86_64__
  if (std::getenv("ATEN_CPU_CAPABILITY") != nullptr || !__builtin_cpu_supports("fma")) return {};
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return "AVX512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
  return {};
}

/// The number of threads that LibTorch and MKL choose; 0 where that is not plain.
int64_t libtorch_threads() {
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view set = *variable;
    const bool known = set.starts_with("OMP_NUM_THREADS=") || set.starts_with("OMP_WAIT_POLICY=");
    if (set.starts_with("MKL_") || set.starts_with("KMP_") || (set.starts_with("OMP_") && !known)) return 0;
  }
  const int64_t cores = mnemo::base::usable_cores();
  if (const char* chosen = std::getenv("OMP_NUM_THREADS"); chosen != nullptr) {
    const int64_t threads = std::atoi(chosen);
    return std::to_string(threads) == chosen && threads > 0 && threads <= cores ? threads : 0;
  }
  return content_of("/sys/devices/system/cpu/smt/active") == "0\n" ? cores : 0;
}

/// `mnemo --version`; empty if that needs LibTorch. build: the answer to kOfBuild.
std::string version(std::string_view build) {
  const size_t libtorch = build.find('\n');
  const std::string capability = libtorch_capability();
  const int64_t threads = libtorch_threads();
  const bool amx = mnemo::base::processor_features().find("amx_int8") != std::string::npos;  // are tiles used?
  if (libtorch == build.npos || capability.empty() || threads == 0 || amx) return {};
  mnemo::base::init_process();
  return mnemo::cli::version_text({MNEMO_VERSION, std::string(build.substr(0, libtorch)),
                                   std::string(build.substr(libtorch + 1)), capability, threads});
}

bool answer(const std::string& folder, int count, char** words) {
  constexpr int kMostWords = 2;
  if (count < 2 || count > kMostWords + 1) return false;
  std::string asked;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word.find_first_of(" \n(") != word.npos) return false;
    asked.append(i > 1 ? " " : "").append(word);
  }
  if (asked == "help recipe" && mnemo::base::terminal_width() != 80) return false;
  std::string answers = content_of(folder + "/mnemo-answers");
  if (answers.empty()) answers = content_of(folder + "/" MNEMO_ANSWERS);
  const bool of_version = asked == "--version";
  const auto text = find_answer(answers, of_version ? mnemo::cli::kOfBuild : asked);
  if (!text) return false;
  const bool recipes_table = asked == "recipes", table = recipes_table || asked == "help presets";
  if (table && is_too_wide(recipes_table ? text->substr(0, text->find("\n\n")) : *text)) return false;
  std::string shown = of_version ? version(*text) : std::string(*text);
  if (shown.empty()) return false;
  if (asked == "recipes" || asked.starts_with("completion ")) {
    const std::filesystem::path recipes = mnemo::cli::recipe_folder_beside(folder);
    if (find_answer(answers, mnemo::cli::kMarkOfRecipes) != mnemo::cli::mark_of_files(recipes)) return false;
    const size_t here = shown.find(mnemo::cli::kFolderHere);
    if (here != shown.npos) shown.replace(here, 1, recipes.string());
  }
  mnemo::base::print(shown);
  return true;
}

/// `mnemo runs [FOLDER] [--json]`; false: the whole program must answer, or tell what is wrong.
bool list_runs(int count, char** words) {
  if (count < 2 || words[1] != std::string_view("runs")) return false;
  std::optional<std::string> folder;
  bool json = false;
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    const bool flag = word == "--json" && !json;
    if (!flag && (word.empty() || word[0] == '-' || folder)) return false;
    if (flag)
      json = true;
    else
      folder = word;
  }
  mnemo::cli::print_runs(folder.value_or("runs"), json);
  return true;
}

/// Whether this program has done all; the whole program tells what went wrong.
bool do_alone(const std::string& folder, int count, char** words) {
  try {
    return answer(folder, count, words) || list_runs(count, words);
  } catch (const mnemo::base::OutputClosed&) {
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

int main(int count, char** words) {
  char program[PATH_MAX + 1] = {};
  if (readlink("/proc/self/exe", program, PATH_MAX) < 0) std::strncpy(program, words[0], PATH_MAX);
  const std::string path = program, folder = path.substr(0, path.rfind('/'));
  // As base::spin_briefly() has it, which would start the whole program once more.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "1000", 0);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  if (do_alone(folder, count, words)) return mnemo::base::kDone;
  std::signal(SIGPIPE, before);
  const std::string whole = folder + "/mnemo-whole";
  execv(whole.c_str(), words);
  std::fprintf(stderr, "mnemo: error: %s: cannot be started: %s\n", whole.c_str(), std::strerror(errno));
  return mnemo::base::kOwnFault;
}
