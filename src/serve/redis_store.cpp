// Sessions in Redis, over Asio as in http_server.cpp.
#include "serve/session_store.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "serve/api_error.h"
#include "serve/redis_protocol.h"

namespace mnemo::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Kind = RedisReply::Kind;

/// A session is a hash: version, seconds to live, bytes. Scripts run as a whole. Redis keeps it for a tenth longer than
/// its time: uses within that tenth need no write, which an append-only file would sync, and no session ends before the
/// time that was answered.
constexpr std::string_view kPut =
    "if tonumber(redis.call('HGET', KEYS[1], 'version') or '0') ~= tonumber(ARGV[1]) then return 0 end "
    "redis.call('HSET', KEYS[1], 'version', ARGV[1] + 1, 'ttl', ARGV[2], 'bytes', ARGV[3]) "
    "redis.call('PEXPIRE', KEYS[1], ARGV[2] * 1100) return 1";
constexpr std::string_view kTouch =
    "local found = redis.call('HMGET', KEYS[1], 'version', 'ttl') if not found[1] then return 0 end "
    "if redis.call('PTTL', KEYS[1]) < found[2] * 1000 then redis.call('PEXPIRE', KEYS[1], found[2] * 1100) end "
    "return tonumber(found[1])";

ApiError unavailable(const std::string& why) {
  return ApiError(503, fmt::format("the store of sessions does not answer: {}", why), "", "store_unavailable");
}

class RedisStore : public SessionStore {
 public:
  explicit RedisStore(const std::string& url) : address_(read_redis_address(url)) {
    try {
      connect();
    } catch (const boost::system::system_error& error) {
      base::input_error("serve: --store {}: {}", address_.text(), error.code().message());
    }
  }

  std::optional<Stored> get(const std::string& id) override {
    RedisReply reply = ask({"HMGET", key(id), "version", "bytes"}, true);
    if (reply.kind != Kind::list || reply.items.size() != 2) throw unexpected("HMGET");
    if (reply.items[0].kind == Kind::nothing) return std::nullopt;
    const std::string& digits = reply.items[0].text;
    int64_t version = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), version);
    if (version < 1 || reply.items[1].kind != Kind::bytes) throw unexpected("HMGET");
    return Stored{std::move(reply.items[1].text), version};
  }
  int64_t touch(const std::string& id) override { return number(ask({"EVAL", kTouch, "1", key(id)}, true)); }
  bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) override {
    const std::string version = std::to_string(expected), seconds = std::to_string(ttl);
    return number(ask({"EVAL", kPut, "1", key(id), version, seconds, bytes}, false)) == 1;
  }
  void remove(const std::string& id) override { ask({"UNLINK", key(id)}, true); }

 private:
  static constexpr auto kPatience = std::chrono::seconds(2);

  static std::string key(const std::string& id) { return "mnemo:session:" + id; }
  static ApiError unexpected(std::string_view command) {
    return unavailable(fmt::format("an unexpected reply to {}", command));
  }
  static int64_t number(const RedisReply& reply) {
    if (reply.kind != Kind::integer) throw unexpected("EVAL");
    return reply.integer;
  }

  /// Runs what `begin` starts to its end, or breaks the connection at the deadline. Throws boost::system::system_error.
  template <class Begin>
  void run(Begin&& begin) {
    error_code result = asio::error::timed_out;
    begin([&result](error_code error, auto&&...) { result = error; });
    io_.restart();
    io_.run_until(deadline_);
    if (!io_.stopped()) {
      error_code ignored;
      socket_.close(ignored);
      io_.run();
      result = asio::error::timed_out;
    }
    if (result) throw boost::system::system_error(result);
  }

  /// In a thread of its own, because nothing ends the system's search for a name before it is done.
  tcp::resolver::results_type find_host() const {
    std::packaged_task<tcp::resolver::results_type()> search([host = address_.host, port = address_.port] {
      asio::io_context io;
      return tcp::resolver(io).resolve(host, port);
    });
    auto found = search.get_future();
    std::thread(std::move(search)).detach();
    if (found.wait_until(deadline_) != std::future_status::ready)
      throw boost::system::system_error(asio::error::timed_out);
    return found.get();
  }

  void connect() {
    socket_ = tcp::socket(io_);
    received_.clear();
    const auto endpoints = find_host();
    run([&](auto done) { asio::async_connect(socket_, endpoints, done); });
    socket_.set_option(tcp::no_delay(true));
    std::vector<std::string_view> hello = {"HELLO", "2"};
    if (!address_.password.empty()) hello.insert(hello.end(), {"AUTH", address_.user, address_.password});
    const RedisReply greeted = exchange(hello);
    base::require(greeted.kind != Kind::error,
                  "serve: --store {}: expected Redis 6 or later that lets us in, found: {}", address_.text(),
                  base::printable(greeted.text, 200));
    const std::string database = std::to_string(address_.database);
    const RedisReply selected = exchange(std::array<std::string_view, 2>{"SELECT", database});
    base::require(selected.kind == Kind::status, "serve: --store {}: {}", address_.text(),
                  base::printable(selected.text, 200));
  }

  RedisReply exchange(std::span<const std::string_view> words) {
    const std::string command = redis_command(words);
    run([&](auto done) { asio::async_write(socket_, asio::buffer(command), done); });
    for (;;) {
      if (auto read = read_redis_reply(received_, kReply)) {
        received_.erase(0, read->length);
        return std::move(read->reply);
      }
      const size_t before = received_.size();
      received_.resize(before + kRead);
      size_t count = 0;
      run([&](auto done) {
        socket_.async_read_some(asio::buffer(received_.data() + before, kRead),
                                [&count, done](error_code error, size_t n) {
                                  count = n;
                                  done(error);
                                });
      });
      received_.resize(before + count);
    }
  }

  /// Whether the connection rests as the last reply has left it: Redis ends those that are idle, and all when it starts
  /// again.
  bool rests() {
    char next = 0;
    return ::recv(socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  /// The reply to a command, within kPatience in all. again: the command may be repeated, so a connection that is lost
  /// while it waits is opened again.
  RedisReply ask(const std::vector<std::string_view>& words, bool again) {
    const auto now = std::chrono::steady_clock::now();
    if (now < broken_until_) throw unavailable(why_);
    deadline_ = now + kPatience;
    error_code ignored;
    if (socket_.is_open() && !rests()) socket_.close(ignored);
    for (int attempt = 0;; ++attempt) {
      const bool fresh = !socket_.is_open();
      try {
        if (fresh) connect();
        RedisReply reply = exchange(words);
        if (reply.kind != Kind::error) return reply;
        if (reply.text.starts_with("OOM"))
          throw ApiError(429, "the store of sessions is full; delete some", "", "sessions_full");
        throw unavailable(base::printable(reply.text, 200));
      } catch (const boost::system::system_error& error) {
        why_ = error.code().message();
      } catch (const base::InputError& error) {
        why_ = error.what();
      }
      socket_.close(ignored);  // a late reply would be taken for that of the next command
      const auto failed = std::chrono::steady_clock::now();
      const bool late = failed >= deadline_;
      if (!fresh && again && attempt == 0 && !late) continue;
      base::log_warning("serve: {}: {}", address_.text(), why_);
      broken_until_ = failed + std::chrono::milliseconds(fresh || late ? 500 : 0);
      throw unavailable(why_);
    }
  }

  static constexpr size_t kRead = 64 << 10;
  // HELLO lists the modules of a server, each a list with its arguments in another.
  static constexpr RedisLimits kReply = {.items = 64, .depth = 4};
  RedisAddress address_;
  asio::io_context io_{1};
  tcp::socket socket_{io_};
  std::string received_, why_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + kPatience, broken_until_;
};

}  // namespace

std::unique_ptr<SessionStore> open_redis(const std::string& url) { return std::make_unique<RedisStore>(url); }

}  // namespace mnemo::serve
