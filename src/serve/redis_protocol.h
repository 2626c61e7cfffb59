#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::serve {

/// "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]"; %XX in user and password is a byte.
struct RedisAddress {
  std::string host, port = "6379", user = "default", password;
  int64_t database = 0;
  /// For messages: without user and password.
  std::string text() const;
};
/// Throws InputError for another form, without telling the password.
RedisAddress read_redis_address(std::string_view url);

/// A command of RESP2: an array of bulk strings.
std::string redis_command(std::span<const std::string_view> words);

/// A reply of RESP2.
struct RedisReply {
  enum class Kind { status, error, integer, bytes, nothing, list };
  Kind kind = Kind::nothing;
  std::string text = {};  ///< of a status, an error, or bytes
  int64_t integer = 0;
  std::vector<RedisReply> items = {};
};

struct RedisLimits {
  size_t bytes = size_t{1} << 30;  ///< of a bulk string
  size_t line = 4096;              ///< bytes of a line
  int64_t items = 16;              ///< of a list
  int depth = 2;                   ///< of lists in lists
};

/// The reply that `bytes` begins with, and its length; nothing if more bytes must come. Takes no more memory than the
/// bytes that are there. Throws InputError for what is no reply or is beyond the limits.
struct ReadReply {
  RedisReply reply;
  size_t length = 0;
};
std::optional<ReadReply> read_redis_reply(std::string_view bytes, const RedisLimits& limits = {});

}  // namespace mnemo::serve
