#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/session_store.h"

namespace mnemo::serve {

/// Sessions in a folder, a file each, which has its old or its new content whenever the program ends: a line with
/// version and time to live, then the bytes. A file's time is that of its last use. Servers that share a folder lock it
/// (flock) while they compare and replace.
class SessionFolder : public SessionStore {
 public:
  /// Makes the folder.
  explicit SessionFolder(std::string folder);
  std::optional<Stored> get(const std::string& id) override;
  int64_t touch(const std::string& id) override;
  bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) override;
  void remove(const std::string& id) override;
  std::vector<std::string> ids() override;
  /// Looks at a hundred files of the folder, the next ones each time. One that cannot be read stays.
  void sweep() override;
  /// As this process knows them; what others store is counted when it starts.
  int64_t bytes() const override { return bytes_; }

 private:
  class Lock;
  struct Head;
  std::string path(const std::string& id) const;
  /// Nothing for a file that is missing or of another form. Throws InputError for one that cannot be read.
  std::optional<Head> head(const std::string& id) const;
  /// As head(), but nothing for a session whose time has passed.
  std::optional<Head> current_head(const std::string& id) const;
  void erase(const std::string& id);
  std::string folder_;
  std::vector<std::string> to_sweep_;
  int64_t bytes_ = 0;
};

}  // namespace mnemo::serve
