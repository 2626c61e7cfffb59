#include "data/prepare/output.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"

namespace mnemo::data {
namespace {

constexpr const char* kRecipeFile = "data.toml";

const std::string& checked(const std::string& out, const std::array<const char*, 3>& files) {
  if (!base::is_folder(out)) return out;
  for (const std::string& name : base::list_folder(out)) {
    base::require(name == kRecipeFile || std::find(files.begin(), files.end(), name) != files.end(),
                  "{}: not overwritten, because it contains '{}'; choose another folder", out, base::printable(name));
  }
  return out;
}

}  // namespace

Output::Output(const std::string& out, const std::array<const char*, 3>& files)
    : out_(out), files_(files), folder_(checked(out, files)) {}

std::string Output::path(size_t i) const { return base::join_path(out_, files_[i]); }

std::string Output::commit(std::string_view about, std::string_view keys, const std::vector<PreparedPart>& parts) {
  std::string text = fmt::format("# {}\n[data]\n{}", about, keys);
  for (const PreparedPart& part : parts) {
    text += fmt::format("{} = \"{}\"\n", part.name, std::filesystem::path(part.path).filename().string());
  }
  base::write_file_atomic(folder_.file(kRecipeFile), text);
  folder_.commit();
  return base::join_path(out_, kRecipeFile);
}

void copy_text(const TextSource& from, const std::string& to) {
  base::AtomicFile file(to);
  from.for_each_chunk([&](std::string_view chunk) {
    file.write(chunk);
    return true;
  });
  file.commit();
}

std::string find_file(const std::string& folder, const std::vector<std::string>& names, std::string_view data_set,
                      std::string_view from) {
  for (const std::string& name : names) {
    if (const std::string path = base::join_path(folder, name); base::path_exists(path)) return path;
  }
  base::input_error("{}: expected {} of {}, found neither; get it from {}", folder, fmt::join(names, " or "), data_set,
                    from);
}

}  // namespace mnemo::data
