#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::serve {

/// Sessions in a folder, a file each, which has its old or its new content whenever the program ends.
class SessionFolder {
 public:
  /// Makes the folder.
  explicit SessionFolder(std::string folder);
  /// Throws ApiError 429 "sessions_full" if it cannot be written.
  void put(const std::string& id, const std::string& bytes);
  /// Nothing if there is no such session.
  std::optional<std::string> get(const std::string& id) const;
  void remove(const std::string& id);
  std::vector<std::string> ids() const;
  int64_t bytes() const { return bytes_; }

 private:
  std::string path(const std::string& id) const;
  std::string folder_;
  int64_t bytes_ = 0;
};

/// Whether a text has the form of an id: 32 hexadecimal digits.
bool is_session_id(const std::string& text);

}  // namespace mnemo::serve
