// The server against clients that write bytes: limits, deadlines, clients that leave or do not read.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "serve/http.h"
#include "tests/unit/serve/client.h"

namespace mnemo::serve {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// A server whose handler keeps each exchange, or answers with the request's own body.
class HttpServerTest : public testing::Test {
 protected:
  HttpServer make(const HttpLimits& limits = {}) {
    return HttpServer(
        "127.0.0.1", 0, limits, [](const Request& request) { return request.header("x-a") != "unread"; },
        [this](Request request, std::shared_ptr<Exchange> exchange) {
          if (request.path == "/echo")
            return exchange->respond(
                {.body = request.method + " " + request.query + " " + request.header("x-a") + " " + request.body,
                 .type = "text/plain"});
          const std::scoped_lock lock(mutex_);
          kept_.push_back(std::move(exchange));
          changed_.notify_all();
        },
        [this](int status) {
          const std::scoped_lock lock(mutex_);
          refused_.push_back(status);
        });
  }
  std::shared_ptr<Exchange> kept(size_t number = 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(3), [&] { return kept_.size() > number; });
    return kept_.at(number);
  }
  void TearDown() override { kept_.clear(); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> kept_;
  std::vector<int> refused_;
};

TEST_F(HttpServerTest, LetsGoOfUnansweredRequestsWhenItEnds) {
  auto server = std::unique_ptr<HttpServer>(new HttpServer(make()));
  const Client client(*server);
  client.send("GET /kept HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::weak_ptr<Exchange> unanswered = kept();
  EXPECT_FALSE(kept()->closed());
  server.reset();
  EXPECT_TRUE(kept()->closed()) << "whoever still works on it may end";
  EXPECT_FALSE(unanswered.expired());
  kept_.clear();
  EXPECT_TRUE(unanswered.expired());
}

TEST_F(HttpServerTest, AnswersOneRequestAfterTheOther) {
  const HttpServer server = make();
  const Client client(server);
  client.send("POST /echo?q HTTP/1.1\r\nHost: a\r\nX-A: b\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_NE(client.receive("POST q b abc").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  // Two at once, and one that comes in pieces.
  client.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET /echo?2 HTTP/1.1\r\nHo");
  client.send("st: a\r\n\r\n");
  const std::string both = client.receive("GET 2");
  EXPECT_NE(both.find("Content-Length: 6"), std::string::npos) << both;
  EXPECT_NE(both.find("GET 2"), std::string::npos) << both;
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
  EXPECT_EQ(client.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("x");
  EXPECT_NE(client.receive("POST   x").find("200 OK"), std::string::npos);
  client.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(client.receive().find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, RefusesWhatIsBeyondItsLimits) {
  const HttpServer server = make();
  std::string fields;
  for (int i = 0; i < 101; ++i) fields += fmt::format("A{}: b\r\n", i);
  const std::vector<std::pair<std::string, int>> requests = {
      {"GET / HTTP/1.1\r\nA: " + std::string(17 << 10, 'a') + "\r\n\r\n", 431},
      {"GET / HTTP/1.1\r\n" + fields + "\r\n", 431},
      {"GET /" + std::string(9 << 10, 'a') + " HTTP/1.1\r\n\r\n", 414},
      {"POST / HTTP/1.1\r\nContent-Length: 8388609\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n900000\r\n" + std::string(9 << 20, 'a'), 413},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"not a request\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: -3\r\n\r\n", 400},
      {std::string("GET / HTTP/1.1\r\nA: \0\r\n\r\n", 24), 400}};
  for (const auto& [bytes, status] : requests) {
    const Client client(server);
    client.send(bytes);
    const std::string answer = client.receive();
    EXPECT_TRUE(answer.starts_with(fmt::format("HTTP/1.1 {} ", status))) << status << ": " << answer.substr(0, 300);
    EXPECT_NE(answer.find("\"message\""), std::string::npos);
  }
  const std::scoped_lock lock(mutex_);
  EXPECT_EQ(refused_.size(), requests.size());
  EXPECT_TRUE(kept_.empty());
}

TEST_F(HttpServerTest, APutMayBeLargerThanOtherBodiesAFewAtATime) {
  const HttpServer server = make({.body_bytes = 100, .put_path = "/echo", .put_bytes = 1000, .large_puts = 1});
  const auto request = [](const char* method, int bytes) {
    return fmt::format("{} /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", method, bytes);
  };
  const std::string body(1000, 'b');
  const Client large(server);
  for (int i = 0; i < 2; ++i) {  // one after the other on one connection
    large.send(request("PUT", 1000) + body.substr(1));
    const Client second(server);
    second.send(request("PUT", 101));
    EXPECT_NE(second.receive().find("HTTP/1.1 503 "), std::string::npos);
    const Client small(server);
    small.send(request("PUT", 100) + body.substr(0, 100));
    EXPECT_NE(small.receive("bbb").find("HTTP/1.1 200 "), std::string::npos);
    large.send("b");
    EXPECT_NE(large.receive(body).find("HTTP/1.1 200 "), std::string::npos);
    large.send(request("GET", 0));
    EXPECT_NE(large.receive("GET   ").find("HTTP/1.1 200 "), std::string::npos);
  }
  const std::string elsewhere = "PUT /kept HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n";
  for (const std::string& refused : {request("PUT", 1001), request("POST", 101), elsewhere}) {
    const Client client(server);
    client.send(refused);
    EXPECT_NE(client.receive().find("HTTP/1.1 413 "), std::string::npos) << refused;
  }
  const Client chunked(server);
  chunked.send("PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + body.substr(0, 101));
  EXPECT_NE(chunked.receive().find("HTTP/1.1 413 "), std::string::npos);
}

TEST_F(HttpServerTest, AnswersWithoutABodyThatIsNotRead) {
  const HttpServer server = make({.body_bytes = 100, .put_path = "/echo", .put_bytes = 1000, .large_puts = 1});
  const auto request = [](const std::string& fields) {
    return "PUT /echo HTTP/1.1\r\nHost: a\r\nX-A: unread\r\n" + fields + "\r\n";
  };
  for (const char* fields : {"Content-Length: 1000\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
                             "Content-Length: 3\r\nExpect: 100-continue\r\n"}) {
    const Client client(server);
    client.send(request(fields));
    const std::string answer = client.receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\nPUT  unread ")) << answer;
  }
  const Client client(server);
  client.send(request("") + request("Content-Length: 3\r\n") + "abc");  // without a body the connection goes on
  const std::string both = client.receive();
  EXPECT_NE(both.find("PUT  unread HTTP/1.1 200 OK"), std::string::npos) << both;
}

TEST_F(HttpServerTest, EndsWhatIsTooSlow) {
  HttpLimits limits;
  limits.header_s = limits.body_s = limits.idle_s = 0.2;
  limits.request_s = 0.5;
  const HttpServer server = make(limits);
  const auto ends_with = [&](const std::string& bytes, const std::string& begin) {
    const Client client(server);
    client.send(bytes);
    const std::string answer = client.receive();
    EXPECT_EQ(answer.find("<nothing>"), std::string::npos);
    EXPECT_EQ(answer.substr(0, begin.size()), begin);
    EXPECT_EQ(begin.empty(), answer.empty()) << answer;
  };
  ends_with("", "");
  ends_with("GET / HT", "HTTP/1.1 408 ");
  ends_with("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", "HTTP/1.1 408 ");
  ends_with("GET /kept HTTP/1.1\r\n\r\n", "");
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesWithin100Milliseconds) {
  const HttpServer server = make();
  for (size_t number = 0; number < 2; ++number) {
    const bool streams = number == 1;
    Client client(server);
    client.send("GET /kept HTTP/1.1\r\n\r\n");
    const auto exchange = kept(number);
    if (streams) {
      exchange->start(200, "text/plain", {});
      exchange->write("a");
      client.receive("a\r\n");
    }
    std::mutex mutex;
    std::condition_variable seen;
    bool closed = false;
    exchange->on_close([&] {
      const std::scoped_lock lock(mutex);
      closed = true;
      seen.notify_all();
    });
    const auto begin = Clock::now();
    client.leave();
    std::unique_lock lock(mutex);
    EXPECT_TRUE(seen.wait_for(lock, std::chrono::seconds(2), [&] { return closed; }));
    EXPECT_LT(milliseconds(begin), 100);
    EXPECT_TRUE(exchange->closed());
    exchange->write("to nobody");
  }
}

TEST_F(HttpServerTest, KeepsWhatIsUnsentAndEndsAClientThatDoesNotRead) {
  HttpLimits limits;
  limits.write_s = 0.5;
  const HttpServer server = make(limits);
  const Client client(server);
  client.send("GET /kept HTTP/1.1\r\n\r\n");
  const auto exchange = kept();
  exchange->start(200, "text/plain", {});
  const std::string part(1 << 20, 'a');
  for (int i = 0; i < 16; ++i) exchange->write(part);
  EXPECT_GT(exchange->unsent(), size_t{1} << 20);
  const auto begin = Clock::now();
  while (!exchange->closed() && milliseconds(begin) < 3000) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(exchange->closed());
}

TEST_F(HttpServerTest, StreamsInChunksAndTellsWhenAllIsSent) {
  const HttpServer server = make();
  const Client client(server), other(server);
  client.send("GET /kept HTTP/1.1\r\n\r\n");
  const auto exchange = kept();
  std::atomic<int> drained = 0;
  exchange->on_drained([&] { ++drained; });
  exchange->start(200, "text/plain", {{"X-B", "c"}});
  exchange->write("hello");
  exchange->finish();
  const std::string answer = client.receive("0\r\n\r\n");
  EXPECT_NE(answer.find("X-B: c\r\n"), std::string::npos);
  EXPECT_NE(answer.find("\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), std::string::npos) << answer;
  const auto begin = Clock::now();
  while (drained == 0 && milliseconds(begin) < 3000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(drained, 1);
  client.send("GET /echo HTTP/1.1\r\n\r\n");  // the connection goes on
  EXPECT_NE(client.receive("GET").find("200 OK"), std::string::npos);
  // A client of HTTP/1.0 reads to the end; one whose answer breaks off sees that.
  other.send("GET /kept HTTP/1.0\r\n\r\n");
  const auto second = kept(1);
  second->start(200, "text/plain", {});
  second->write("hello");
  second->finish();
  EXPECT_TRUE(other.receive().ends_with("\r\n\r\nhello"));
}

TEST_F(HttpServerTest, TellsOfWhatHasBeenSentAlready) {
  const HttpServer server = make();
  const Client client(server);
  client.send("GET /kept HTTP/1.1\r\n\r\n");
  const auto exchange = kept();
  exchange->start(200, "text/plain", {});
  exchange->write("hello");
  client.receive("hello");
  const auto begin = Clock::now();
  while (exchange->unsent() > 0 && milliseconds(begin) < 3000) std::this_thread::yield();
  std::atomic<int> drained = 0;
  exchange->on_drained([&] { ++drained; });
  while (drained == 0 && milliseconds(begin) < 3000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(drained, 1);
  exchange->finish();
  client.receive("0\r\n\r\n");
}

TEST_F(HttpServerTest, TakesLittleForAClientThatDoesNotRead) {
  const HttpServer server = make();
  const Client client(server);
  client.send("GET /kept HTTP/1.1\r\n\r\n");
  const auto exchange = kept();
  exchange->start(200, "text/plain", {});
  const std::string part(64 << 10, 'a');
  for (int i = 0; i < 256; ++i) exchange->write(part);
  size_t last = 0;
  for (size_t now = exchange->unsent(); now != last; now = exchange->unsent()) {
    last = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_GT(last, size_t{15} << 20) << "of 16 MiB";
}

TEST_F(HttpServerTest, SendsWhatSeveralThreadsWriteInTheirOrder) {
  constexpr size_t kStreams = 4;
  const HttpServer server = make();
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::thread> writers;
  for (size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<Client>(server));
    clients.back()->send("GET /kept HTTP/1.0\r\n\r\n");
    writers.emplace_back([exchange = kept(i)] {
      exchange->start(200, "text/plain", {});
      for (int part = 0; part < 200'000; ++part) exchange->write(fmt::format("{} ", part));
      exchange->finish();
    });
  }
  std::string expected;
  for (int part = 0; part < 200'000; ++part) expected += fmt::format("{} ", part);
  for (std::thread& writer : writers) writer.join();
  for (size_t i = 0; i < kStreams; ++i) {
    const std::string answer = clients[i]->receive();
    EXPECT_TRUE(answer.substr(answer.find("\r\n\r\n") + 4) == expected) << i;
  }
}

TEST_F(HttpServerTest, PartsThatComeTogetherLeaveTogether) {
  const HttpServer server = make();
  const Client client(server);
  client.send("GET /kept HTTP/1.0\r\n\r\n");
  const auto exchange = kept();
  exchange->start(200, "text/plain", {});
  exchange->write("first");
  EXPECT_TRUE(client.receive("first").ends_with("first"));
  const auto begin = Clock::now();
  std::jthread writer([&] {
    for (int i = 0; i < 500; ++i) {
      exchange->write(i < 499 ? "a" : "last");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  int receipts = 0;
  for (std::string all; !all.ends_with("last"); ++receipts) {
    char part[4096];
    pollfd one{client.socket(), POLLIN, 0};
    ASSERT_EQ(::poll(&one, 1, 3000), 1) << "the last part does not come";
    const ssize_t count = ::recv(client.socket(), part, sizeof part, 0);
    ASSERT_GT(count, 0);
    all.append(part, static_cast<size_t>(count));
  }
  EXPECT_LE(receipts, milliseconds(begin) / 2 + 2) << "one in two milliseconds";
  // One that comes alone, during a pause or after it.
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    exchange->write("b");
    EXPECT_EQ(client.receive("b"), "b");
  }
  exchange->finish();
}

TEST_F(HttpServerTest, EndsAnAnswerAfterTheNextRequestHasCome) {
  const HttpServer server = make();
  const Client client(server);
  client.send("GET /kept HTTP/1.0\r\n\r\n");
  const auto exchange = kept();
  exchange->start(200, "text/plain", {});
  exchange->write("hello");
  client.receive("hello");
  client.send("GET /echo HTTP/1.0\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it is seen, so nothing waits on the connection
  exchange->finish();
  EXPECT_EQ(client.receive(), "");
}

TEST_F(HttpServerTest, BoundsItsConnections) {
  HttpLimits limits;
  limits.connections = 2;
  const HttpServer server = make(limits);
  const Client first(server), second(server);
  first.send("GET /echo HTTP/1.1\r\n\r\n");
  first.receive("GET");
  second.send("GET /echo HTTP/1.1\r\n\r\n");
  second.receive("GET");
  const Client third(server);
  EXPECT_TRUE(third.receive().starts_with("HTTP/1.1 503 "));
}

TEST(Http, KnowsAddressesOfThisMachine) {
  for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "localhost"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "127.0.0.1.example.org", "10.0.0.1", ""})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace mnemo::serve
