#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::serve {

/// Sessions beyond memory and beyond a process: bytes by id, each with a version that begins at 1. Several servers may
/// share a store, because put() replaces only the version that its caller has seen.
///
/// All of it throws ApiError 503 "store_unavailable" if the store does not answer.
class SessionStore {
 public:
  struct Stored {
    std::string bytes;
    int64_t version = 0;
    int64_t used = 0;  ///< Unix time of the last use, of a store that lists its sessions
  };
  virtual ~SessionStore() = default;
  /// Nothing if there is no such session, or its time has passed.
  virtual std::optional<Stored> get(const std::string& id) = 0;
  /// The version of a session, whose time to live begins anew; 0 if there is none.
  virtual int64_t touch(const std::string& id) = 0;
  /// Stores version `expected` + 1 for `ttl` seconds without use. False if the stored version is not `expected` (0: no
  /// such session); then nothing changes. Throws ApiError 429 "sessions_full" if there is no room.
  virtual bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) = 0;
  virtual void remove(const std::string& id) = 0;
  /// Sessions that were stored earlier, where they can be listed.
  virtual std::vector<std::string> ids() { return {}; }
  /// To be called every second or so: removes sessions whose time has passed, if the store does not do so by itself.
  virtual void sweep() {}
  /// Bytes stored, where they can be counted.
  virtual int64_t bytes() const { return 0; }
};

/// Whether a text has the form of an id: 32 hexadecimal digits.
bool is_session_id(const std::string& text);

/// The store of "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]", Redis 6 or later. Throws InputError for another
/// address and if it cannot be reached.
std::unique_ptr<SessionStore> open_redis(const std::string& url);

}  // namespace mnemo::serve
