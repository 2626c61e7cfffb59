#include "serve/session_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file_io.h"
#include "serve/api_error.h"

namespace mnemo::serve {
namespace {

constexpr std::string_view kEnding = ".session";

}  // namespace

bool is_session_id(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

SessionFolder::SessionFolder(std::string folder) : folder_(std::move(folder)) {
  base::make_folders(folder_);
  for (const std::string& id : ids()) bytes_ += static_cast<int64_t>(base::file_size(path(id)));
}

std::string SessionFolder::path(const std::string& id) const {
  base::ensure(is_session_id(id), "'{}' is no session", id);
  return base::join_path(folder_, id + std::string(kEnding));
}

void SessionFolder::put(const std::string& id, const std::string& bytes) {
  const std::string file = path(id);
  const int64_t before = base::path_exists(file) ? static_cast<int64_t>(base::file_size(file)) : 0;
  try {
    base::write_file_atomic(file, bytes);
  } catch (const base::InputError& error) {
    throw ApiError(429, fmt::format("the session cannot be stored: {}", error.what()), "", "sessions_full");
  }
  bytes_ += static_cast<int64_t>(bytes.size()) - before;
}

std::optional<std::string> SessionFolder::get(const std::string& id) const {
  if (!base::path_exists(path(id))) return std::nullopt;
  return base::read_file(path(id));
}

void SessionFolder::remove(const std::string& id) {
  if (!base::path_exists(path(id))) return;
  bytes_ -= static_cast<int64_t>(base::file_size(path(id)));
  base::remove_tree(path(id));
}

std::vector<std::string> SessionFolder::ids() const {
  std::vector<std::string> found;
  for (const std::string& name : base::list_folder(folder_)) {
    if (!name.ends_with(kEnding)) continue;
    const std::string id = name.substr(0, name.size() - kEnding.size());
    if (is_session_id(id)) found.push_back(id);
  }
  return found;
}

}  // namespace mnemo::serve
