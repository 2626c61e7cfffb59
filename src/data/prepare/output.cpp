#include "data/prepare/output.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"

namespace mnemo::data {
namespace {

constexpr const char* kRecipeFile = "data.toml";

const std::string& checked(const std::string& out, std::span<const char* const> files) {
  std::vector<std::string> names = {kRecipeFile};
  names.insert(names.end(), files.begin(), files.end());
  base::require_replaceable(out, names);
  return out;
}

}  // namespace

Output::Output(const PrepareTarget& out, std::span<const char* const> files)
    : out_(out.folder),
      should_stop_(out.should_stop),
      files_(files.begin(), files.end()),
      guard_(out.stop_guard ? out.stop_guard() : nullptr),
      folder_(checked(out.folder, files)) {}

std::string Output::path(size_t i) const { return base::join_path(out_, files_[i]); }

void Output::copy(const text::TextSource& from, size_t i) const {
  base::AtomicFile to(file(i));
  from.for_each_chunk([&](std::string_view chunk) {
    require_going_on();
    to.write(chunk);
    return true;
  });
  to.commit();
}

void Output::require_going_on() const {
  if (const int reason = should_stop_ ? should_stop_() : 0; reason != 0)
    throw base::Stopped(reason, fmt::format("{}: stopped; nothing was written", out_));
}

std::string Output::commit(std::string_view about, std::string_view keys, const std::vector<PreparedPart>& parts) {
  std::string text = fmt::format("# {}\n[data]\n{}", about, keys);
  for (const PreparedPart& part : parts) {
    text += fmt::format("{} = \"{}\"\n", part.name, std::filesystem::path(part.path).filename().string());
  }
  base::write_file_atomic(folder_.file(kRecipeFile), text);
  require_going_on();
  folder_.commit();
  return base::join_path(out_, kRecipeFile);
}

std::string changed_keys(const base::Node& keys, const base::Node& usual,
                         std::initializer_list<std::string_view> left_out) {
  base::Node changed = base::Node::table();
  for (const base::Node::Member& member : keys.members()) {
    if (std::find(left_out.begin(), left_out.end(), member.key) != left_out.end()) continue;
    if (member.value != usual.at(member.key)) changed.set(member.key, member.value);
  }
  return base::to_toml(changed);
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
