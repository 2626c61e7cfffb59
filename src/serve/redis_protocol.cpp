#include "serve/redis_protocol.h"

#include <charconv>

#include "base/error.h"
#include "base/printable.h"
#include "serve/http.h"

namespace mnemo::serve {
namespace {

constexpr std::string_view kEnd = "\r\n";

int64_t parsed(std::string_view text, int64_t low, int64_t high, std::string_view what) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  base::require(error == std::errc() && end == text.data() + text.size() && number >= low && number <= high,
                "redis: expected {} from {} to {}, found '{}'", what, low, high, base::printable(text, 40));
  return number;
}

std::string decoded(std::string_view text) {
  const std::optional<std::string> out = percent_decoded(text);
  base::require(out.has_value(), "--store: expected two hexadecimal digits after '%' in user and password");
  return *out;
}

/// The line at `at` without its end; moves behind it. Nothing if its end must come.
std::optional<std::string_view> line_at(std::string_view bytes, size_t& at, const RedisLimits& limits) {
  const size_t end = bytes.substr(at, limits.line + kEnd.size()).find(kEnd);
  if (end == std::string_view::npos) {
    base::require(bytes.size() - at < limits.line + kEnd.size(), "redis: expected a line of at most {} bytes",
                  limits.line);
    return std::nullopt;
  }
  const std::string_view line = bytes.substr(at, end);
  at += end + kEnd.size();
  return line;
}

std::optional<RedisReply> reply_at(std::string_view bytes, size_t& at, const RedisLimits& limits, int depth) {
  const auto line = line_at(bytes, at, limits);
  if (!line) return std::nullopt;
  base::require(!line->empty(), "redis: expected a reply, found an empty line");
  const std::string_view rest = line->substr(1);
  RedisReply reply;
  switch (line->front()) {
    case '+':
    case '-':
      reply.kind = line->front() == '+' ? RedisReply::Kind::status : RedisReply::Kind::error;
      reply.text = rest;
      return reply;
    case ':':
      reply.kind = RedisReply::Kind::integer;
      reply.integer = parsed(rest, INT64_MIN, INT64_MAX, "an integer");
      return reply;
    case '$': {
      const int64_t length = parsed(rest, -1, static_cast<int64_t>(limits.bytes), "a length");
      if (length < 0) return reply;
      const auto size = static_cast<size_t>(length);
      if (bytes.size() - at < size + kEnd.size()) return std::nullopt;
      base::require(bytes.substr(at + size, kEnd.size()) == kEnd, "redis: expected the end of a line after {} bytes",
                    size);
      reply.kind = RedisReply::Kind::bytes;
      reply.text = bytes.substr(at, size);
      at += size + kEnd.size();
      return reply;
    }
    case '*': {
      base::require(depth < limits.depth, "redis: expected lists in lists to a depth of {}", limits.depth);
      const int64_t count = parsed(rest, -1, limits.items, "a number of items");
      if (count < 0) return reply;
      reply.kind = RedisReply::Kind::list;
      for (int64_t i = 0; i < count; ++i) {
        auto item = reply_at(bytes, at, limits, depth + 1);
        if (!item) return std::nullopt;
        reply.items.push_back(std::move(*item));
      }
      return reply;
    }
    default:
      base::input_error("redis: expected a reply, found '{}'", base::printable(line->substr(0, 40), 40));
  }
}

}  // namespace

std::string RedisAddress::text() const { return fmt::format("redis://{}:{}/{}", host, port, database); }

RedisAddress read_redis_address(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  base::require(url.starts_with(kScheme),
                "--store: expected redis://HOST:PORT (TLS is a proxy's work); a folder is --session-dir");
  std::string_view rest = url.substr(kScheme.size());
  RedisAddress address;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    rest = rest.substr(at + 1);
    const size_t colon = user.find(':');
    base::require(colon != std::string_view::npos, "--store: expected :PASSWORD or USER:PASSWORD before '@'");
    if (colon > 0) address.user = decoded(user.substr(0, colon));
    address.password = decoded(user.substr(colon + 1));
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view number = rest.substr(slash + 1);
    if (!number.empty()) address.database = parsed(number, 0, 1 << 20, "the number of a database");
    rest = rest.substr(0, slash);
  }
  const bool bracketed = rest.starts_with('[');
  const size_t close = bracketed ? rest.find(']') : 0;
  base::require(close != std::string_view::npos, "--store: expected ']' after an address of IPv6");
  const size_t colon = rest.find(':', close);
  address.host = bracketed ? rest.substr(1, close - 1) : rest.substr(0, colon);
  if (colon != std::string_view::npos) {
    address.port = rest.substr(colon + 1);
    parsed(address.port, 1, 65535, "a port");
  }
  base::require(!address.host.empty(), "--store: expected redis://HOST:PORT, found no host");
  return address;
}

std::string redis_command(std::span<const std::string_view> words) {
  std::string out = fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) {
    out += fmt::format("${}\r\n", word.size());
    out += word;
    out += kEnd;
  }
  return out;
}

std::optional<ReadReply> read_redis_reply(std::string_view bytes, const RedisLimits& limits) {
  size_t at = 0;
  auto reply = reply_at(bytes, at, limits, 0);
  if (!reply) return std::nullopt;
  return ReadReply{std::move(*reply), at};
}

}  // namespace mnemo::serve
