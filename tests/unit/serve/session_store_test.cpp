#include "serve/session_store.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_io.h"
#include "serve/redis_protocol.h"
#include "serve/session_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/serve/refusal.h"

namespace mnemo::serve {
namespace {

using test::expect_error;

const std::string kId(32, 'a');

/// Makes a file's last use `seconds` older.
void age(const std::string& file, int64_t seconds) {
  struct stat facts {};
  ASSERT_EQ(::stat(file.c_str(), &facts), 0);
  const timespec then{facts.st_mtime - seconds, 0};
  const timespec times[2] = {then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

TEST(SessionFolder, ReplacesOnlyTheVersionThatIsExpected) {
  test::TemporaryFolder folder;
  SessionFolder one(folder.path()), other(folder.path());
  EXPECT_EQ(one.touch(kId), 0);
  EXPECT_FALSE(one.put(kId, "x", 1, 60));
  EXPECT_TRUE(one.put(kId, "first\nline", 0, 60));
  EXPECT_FALSE(other.put(kId, "x", 0, 60));
  EXPECT_TRUE(other.put(kId, "second", 1, 60));
  EXPECT_FALSE(one.put(kId, "x", 1, 60));
  EXPECT_EQ(one.touch(kId), 2);
  EXPECT_EQ(one.get(kId)->bytes, "second");
  EXPECT_EQ(one.get(kId)->version, 2);
  EXPECT_EQ(one.ids(), std::vector<std::string>{kId});
  EXPECT_EQ(SessionFolder(folder.path()).bytes(), static_cast<int64_t>(base::file_size(folder / (kId + ".session"))));
  other.remove(kId);
  EXPECT_FALSE(one.get(kId).has_value());
  EXPECT_FALSE(one.put(kId, "x", 2, 60));
}

TEST(SessionFolder, LetsNobodyElseRead) {
  test::TemporaryFolder folder;
  ASSERT_TRUE(SessionFolder(folder.path()).put(kId, "bytes", 0, 60));
  struct stat facts {};
  ASSERT_EQ(::stat((folder / (kId + ".session")).c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST(SessionFolder, EndsSessionsByTheirLastUse) {
  test::TemporaryFolder folder;
  SessionFolder store(folder.path());
  const std::string other(32, 'b'), file = folder / (kId + ".session");
  base::write_file_atomic(folder / (other + ".session"), "of somebody else");
  const std::string later = folder / (std::string(32, 'c') + ".session");  // of a later version, say
  base::write_file_atomic(later, "mnemo-session v2 1 60\nbytes");
  ASSERT_TRUE(store.put(kId, "bytes", 0, 60));
  age(file, 50);
  EXPECT_EQ(store.touch(kId), 1);
  age(file, 50);
  EXPECT_EQ(store.get(kId)->bytes, "bytes");
  EXPECT_NEAR(static_cast<double>(store.get(kId)->used), static_cast<double>(std::time(nullptr)) - 50, 5);
  age(file, 20);
  EXPECT_FALSE(store.get(kId).has_value());
  EXPECT_EQ(store.touch(kId), 0);
  store.sweep();
  EXPECT_FALSE(base::path_exists(file));
  EXPECT_EQ(base::read_file(folder / (other + ".session")), "of somebody else");
  EXPECT_TRUE(base::path_exists(later));
}

/// Lets this process open `count` more files, as long as it lives.
class FewFiles {
 public:
  explicit FewFiles(int count) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next + count), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(SessionFolder, LosesNothingWhereNoFileCanBeOpened) {
  test::TemporaryFolder folder;
  SessionFolder store(folder.path());
  ASSERT_TRUE(store.put(kId, "bytes", 0, 60));
  const int64_t bytes = store.bytes();
  const std::pair unavailable(503, std::string("store_unavailable"));
  {
    const FewFiles none(0);
    EXPECT_EQ(refusal([&] { store.touch(kId); }), unavailable);
    EXPECT_EQ(refusal([&] { store.get(kId); }), unavailable);
    EXPECT_EQ(refusal([&] { store.put(kId, "x", 1, 60); }), unavailable);
    EXPECT_EQ(refusal([&] { store.remove(kId); }), unavailable);
    EXPECT_EQ(refusal([&] { store.sweep(); }), unavailable);
  }
  for (int count = 1; count < 6; ++count) {
    const FewFiles few(count);
    store.sweep();
    EXPECT_EQ(store.bytes(), bytes) << count;
  }
  EXPECT_EQ(store.get(kId)->bytes, "bytes");
}

TEST(SessionFolder, RemovesWhatKilledServersHaveLeft) {
  test::TemporaryFolder folder;
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  const std::string mark = fmt::format(".tmp-{}-abc-1", ended);
  const std::string left = folder / (kId + ".session" + mark), other = folder / ("other.session" + mark);
  for (const std::string& file : {left, other}) base::write_file_atomic(file, "half");
  ASSERT_TRUE(SessionFolder(folder.path()).put(kId, "bytes", 0, 60));
  EXPECT_FALSE(base::path_exists(left));
  EXPECT_TRUE(base::path_exists(other));
}

TEST(SessionFolder, LosesNothingBetweenSeveralWriters) {
  test::TemporaryFolder folder;
  constexpr int kWriters = 4, kEach = 20;
  ASSERT_TRUE(SessionFolder(folder.path()).put(kId, "0", 0, 60));
  std::atomic<int> stale = 0;
  const auto add = [&] {
    SessionFolder store(folder.path());
    for (int done = 0; done < kEach;) {
      const auto read = store.get(kId);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // others come between
      const bool taken = store.put(kId, std::to_string(std::stoi(read->bytes) + 1), read->version, 60);
      done += taken;
      stale += !taken;
    }
  };
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) writers.emplace_back(add);
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(SessionFolder(folder.path()).get(kId)->bytes, std::to_string(kWriters * kEach));
  EXPECT_GT(stale, 0);
}

std::string encoded(const std::vector<std::string_view>& words) { return redis_command(words); }

TEST(RedisProtocol, WritesCommands) { EXPECT_EQ(encoded({"GET", "a\r\nb"}), "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"); }

TEST(RedisProtocol, ReadsReplies) {
  const auto text = [](const std::string& bytes) { return read_redis_reply(bytes)->reply.text; };
  EXPECT_EQ(text("+OK\r\n"), "OK");
  EXPECT_EQ(text("-ERR no\r\nmore"), "ERR no");
  EXPECT_EQ(text("$4\r\na\r\nb\r\n"), "a\r\nb");
  EXPECT_EQ(text("$0\r\n\r\n"), "");
  EXPECT_EQ(read_redis_reply(":-12\r\n")->reply.integer, -12);
  EXPECT_EQ(read_redis_reply("$-1\r\n")->reply.kind, RedisReply::Kind::nothing);
  EXPECT_EQ(read_redis_reply("*-1\r\n")->reply.kind, RedisReply::Kind::nothing);
  const std::string list = "*3\r\n$1\r\na\r\n*1\r\n:2\r\n$-1\r\n";
  const auto read = read_redis_reply(list + "+next\r\n");
  EXPECT_EQ(read->length, list.size());
  EXPECT_EQ(read->reply.items.at(1).items.at(0).integer, 2);
  for (size_t length = 0; length < list.size(); ++length)
    EXPECT_FALSE(read_redis_reply(list.substr(0, length)).has_value()) << length;
}

TEST(RedisProtocol, RefusesHostileReplies) {
  for (const std::string& bytes :
       {std::string("\r\n"), std::string("?\r\n"), std::string("HTTP/1.1 400\r\n"), std::string(":12a\r\n"),
        std::string(":\r\n"), std::string(":99999999999999999999\r\n"), std::string("$-2\r\n"),
        std::string("$1099511627776\r\n"), std::string("$3\r\nabcd\r\n"), std::string("*17\r\n"),
        std::string("*-2\r\n"), std::string("*1\r\n*1\r\n*1\r\n:1\r\n"), std::string("*1000000000\r\n"),
        "+" + std::string(5000, 'a'), std::string(5000, '\n')})
    EXPECT_THROW(read_redis_reply(bytes), base::InputError) << bytes.substr(0, 40);
  // A long one that is announced takes no memory before it comes.
  EXPECT_FALSE(read_redis_reply("$1073741824\r\nabc").has_value());
  std::mt19937 numbers(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = "*2\r\n$3\r\nabc\r\n*2\r\n:12\r\n$-1\r\n";
    for (int j = 0; j < 3; ++j) bytes[numbers() % bytes.size()] = "$*:+-\r\n0123456789a"[numbers() % 18];
    try {
      const auto read = read_redis_reply(bytes);
      EXPECT_TRUE(!read || (read->length > 0 && read->length <= bytes.size()));
    } catch (const base::InputError&) {
    }
  }
}

TEST(RedisProtocol, ReadsAddresses) {
  const RedisAddress plain = read_redis_address("redis://store");
  EXPECT_EQ(plain.text(), "redis://store:6379/0");
  const RedisAddress full = read_redis_address("redis://me:p%40ss@[::1]:7000/3");
  EXPECT_EQ(std::pair(full.user, full.password), std::pair(std::string("me"), std::string("p@ss")));
  EXPECT_EQ(full.text(), "redis://::1:7000/3");
  EXPECT_EQ(read_redis_address("redis://:secret@a:1").user, "default");
  for (const char* wrong :
       {"", "store", "rediss://store", "redis://", "redis://:secret@", "redis://secret@a", "redis://:sec%4@a",
        "redis://:secret@a:0", "redis://:secret@a:b", "redis://a/x", "redis://[::1"}) {
    const std::string message = expect_error<base::InputError>([&] { read_redis_address(wrong); }, {});
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  }
}

constexpr char kThenEnds = '\x04';
constexpr std::string_view kTrickle = "a byte at a time";

/// Says what a test has prepared, one reply to whatever comes. "" closes the connection, as does kThenEnds behind a
/// reply; kTrickle is a reply of a byte every 200 ms for 4 s, after which nothing is said.
class FakeRedis {
 public:
  explicit FakeRedis(std::vector<std::string> replies) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ::listen(socket_, 4);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    url_ = fmt::format("redis://:secret@127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this, replies = std::move(replies)] { talk(replies); });
  }
  ~FakeRedis() {
    ::shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(socket_);
  }
  const std::string& url() const { return url_; }
  /// All that has come, once every reply is given.
  const std::string& asked() {
    thread_.join();
    return asked_;
  }

 private:
  void talk(const std::vector<std::string>& replies) {
    int client = -1;
    for (std::string reply : replies) {
      if (client < 0) client = ::accept(socket_, nullptr, nullptr);
      char bytes[4096];
      const ssize_t count = client < 0 ? 0 : ::recv(client, bytes, sizeof bytes, 0);
      if (count <= 0) break;
      asked_.append(bytes, static_cast<size_t>(count));
      if (reply == kTrickle) {
        for (int i = 0; i < 20 && ::send(client, "+", 1, MSG_NOSIGNAL) == 1; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
        while (::accept(socket_, nullptr, nullptr) >= 0) {  // until the test ends
        }
        break;
      }
      const bool ends = reply.empty() || reply.ends_with(kThenEnds);
      if (reply.ends_with(kThenEnds)) reply.pop_back();
      ::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
      if (!ends) continue;
      ::close(client);
      client = -1;
    }
    ::shutdown(socket_, SHUT_RDWR);  // whoever comes back is refused
    if (client >= 0) ::close(client);
  }
  int socket_;
  std::string url_, asked_;
  std::thread thread_;
};

// With a module and its arguments.
const std::string kHello =
                      "*4\r\n+server\r\n+redis\r\n+modules\r\n"
                      "*1\r\n*6\r\n+name\r\n+json\r\n+ver\r\n:1\r\n+args\r\n*1\r\n+a\r\n",
                  kOk = "+OK\r\n";

TEST(RedisStore, SaysWhyItCannotBeOpened) {
  {
    const FakeRedis old({"-ERR unknown command 'HELLO'\r\n"});
    const std::string message = expect_error<base::InputError>([&] { open_redis(old.url()); }, {"Redis 6", "HELLO"});
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
  }
  const FakeRedis wrong({"-WRONGPASS invalid\r\n"});
  expect_error<base::InputError>([&] { open_redis(wrong.url()); }, {"WRONGPASS"});
  expect_error<base::InputError>([&] { open_redis("redis://127.0.0.1:1"); }, {"redis://127.0.0.1:1/0", "refused"});
}

TEST(RedisStore, ComparesAndReplaces) {
  const FakeRedis redis({kHello, kOk, ":1\r\n", ":0\r\n", "*2\r\n$1\r\n7\r\n$3\r\na\r\n\r\n", "*2\r\n$-1\r\n$-1\r\n",
                         ":7\r\n", "-OOM command not allowed\r\n"});
  const auto store = open_redis(redis.url());
  EXPECT_TRUE(store->put(kId, "bytes", 0, 60));
  EXPECT_FALSE(store->put(kId, "bytes", 0, 60));
  const auto found = store->get(kId);
  EXPECT_EQ(found->version, 7);
  EXPECT_EQ(found->bytes, "a\r\n");
  EXPECT_FALSE(store->get(kId).has_value());
  EXPECT_EQ(store->touch(kId), 7);
  EXPECT_EQ(refusal([&] { store->put(kId, "bytes", 7, 60); }), std::pair(429, std::string("sessions_full")));
}

TEST(RedisStore, OpensALostConnectionAgainButStoresNothingTwice) {
  const FakeRedis redis({kHello, kOk, "", kHello, kOk, ":3\r\n", "", kHello, kOk, ":4\r\n"});
  const auto store = open_redis(redis.url());
  EXPECT_EQ(store->touch(kId), 3);
  const auto lost = std::pair(503, std::string("store_unavailable"));
  EXPECT_EQ(refusal([&] { store->put(kId, "bytes", 3, 60); }), lost);  // whether it was stored is not known
  EXPECT_EQ(store->touch(kId), 4);
}

TEST(RedisStore, StoresOverAConnectionThatHasEndedSince) {
  const FakeRedis redis({kHello, kOk, std::string(":1\r\n") + kThenEnds, kHello, kOk, ":1\r\n"});
  const auto store = open_redis(redis.url());
  EXPECT_EQ(store->touch(kId), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(store->put(kId, "bytes", 1, 60));
}

TEST(RedisStore, WaitsTwoSecondsInAll) {
  const FakeRedis redis({kHello, kOk, std::string(kTrickle)});
  const auto store = open_redis(redis.url());
  const std::pair lost(503, std::string("store_unavailable"));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(refusal([&] { store->touch(kId); }), lost);
  EXPECT_EQ(refusal([&] { store->touch(kId); }), lost) << "at once: others' texts would wait again";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(RedisStore, KeepsSessionsUntilTheTimeThatWasAnswered) {
  FakeRedis redis({kHello, kOk, ":1\r\n", ":1\r\n"});
  const auto store = open_redis(redis.url());
  EXPECT_TRUE(store->put(kId, "bytes", 0, 60));
  EXPECT_EQ(store->touch(kId), 1);
  // A tenth is spare, and a use that finds less than the whole time gives all of it again.
  const std::string asked = redis.asked();
  for (const char* part : {"redis.call('PEXPIRE', KEYS[1], ARGV[2] * 1100)",
                           "if redis.call('PTTL', KEYS[1]) < found[2] * 1000 then redis.call('PEXPIRE', KEYS[1], "
                           "found[2] * 1100)"})
    EXPECT_NE(asked.find(part), std::string::npos) << part;
}

TEST(RedisStore, RefusesUnexpectedReplies) {
  for (const std::string& reply :
       {std::string("?\r\n"), std::string("$1099511627776\r\n"), std::string("+OK\r\n"), std::string("*1\r\n:1\r\n"),
        std::string("*2\r\n$1\r\nx\r\n$1\r\nx\r\n"), std::string("-ERR a\x01\r\n")}) {
    const FakeRedis redis({kHello, kOk, reply});
    const auto store = open_redis(redis.url());
    EXPECT_EQ(refusal([&] { store->get(kId); }), std::pair(503, std::string("store_unavailable"))) << reply;
  }
}

}  // namespace
}  // namespace mnemo::serve
