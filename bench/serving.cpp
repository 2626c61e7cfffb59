#include "bench/serving.h"

#include <arpa/inet.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/machine.h"
#include "base/text_table.h"
#include "bundle/bundle.h"
#include "infer/open_text.h"
#include "infer/scheduler.h"
#include "serve/metrics.h"
#include "serve/server.h"

namespace mnemo::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kPrompt = "the";
const std::vector<int64_t> kStreams = {1, 4, 16};
constexpr int64_t kTokens = 256;                   // of a stream
constexpr int kSlow = 900, kSilent = 100;          // clients; 1,024 connections are taken
constexpr int64_t kSilentTokens = 200'000;         // 30 MB
constexpr int kHealthyRounds = 500;

/// A connection to the server in this process.
class Client {
 public:
  /// unread: bytes that the system keeps for a client that does not read; 0: as many as it likes.
  explicit Client(int64_t port, int unread = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (unread > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &unread, sizeof unread);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    base::require(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
                  "serving: cannot connect to port {}", port);
  }
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)), tail_(std::move(other.tail_)) {}
  Client& operator=(Client&&) = delete;
  ~Client() {
    if (socket_ >= 0) ::close(socket_);
  }
  int socket() const { return socket_; }
  bool send(const std::string& bytes) const {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  void post(const std::string& body) const {
    send(fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  }
  /// Reads what has come; whether `end` was in it.
  bool read_until(std::string_view end) {
    static thread_local char part[1 << 16];
    const ssize_t count = ::recv(socket_, part, sizeof part, 0);
    base::require(count > 0, "serving: the server has closed a connection");
    tail_.append(part, static_cast<size_t>(count));
    const bool found = tail_.find(end) != std::string::npos;
    tail_.erase(0, found ? tail_.size() : tail_.size() - std::min(tail_.size(), end.size()));
    return found;
  }
  /// Seconds until the answer to a request has come, of which `end` is the last.
  double ask(const std::string& request, std::string_view end) {
    const auto begin = Clock::now();
    send(request);
    while (!read_until(end)) {
    }
    return seconds_since(begin);
  }

 private:
  int socket_;
  std::string tail_;  // of what has been read
};

std::string body_of(int64_t tokens, int64_t seed, bool streams) {
  return fmt::format(R"({{"model": "m", "prompt": "{}", "max_tokens": {}, "seed": {}, "stream": {}}})", kPrompt, tokens,
                     seed, streams);
}

/// The server, and the text that it serves.
struct Subject {
  explicit Subject(const std::string& folder)
      : text(infer::open_text(bundle::read_bundle(folder, {}))), server([] {
          serve::ServerOptions options;
          options.port = 0;
          options.max_queue = kSilent + 64;
          options.requests.max_tokens = kSilentTokens;
          options.access_log = false;
          return options;
        }()) {
    server.open({.name = "m", .text = text, .threads = at::get_num_threads()});
  }
  infer::TextSession text;
  serve::Server server;
};

/// Tokens a second of so many texts, by the scheduler alone.
double scheduler_speed(const infer::TextSession& text, int64_t streams) {
  infer::Scheduler scheduler(text.session().shared_engine());
  for (int64_t seed = 0; seed < streams; ++seed) {
    const infer::GenerateOptions options{.max_tokens = kTokens, .temperature = 1.0, .seed = seed};
    infer::TextSession own = text;
    own.session().set_sampling(options);
    scheduler.submit(own, own.prompt(kPrompt), options);
  }
  int64_t tokens = 0;
  const auto begin = Clock::now();
  while (!scheduler.idle()) {
    for (const infer::Scheduler::Event& event : scheduler.tick()) tokens += event.token >= 0 ? 1 : 0;
  }
  return static_cast<double>(tokens) / seconds_since(begin);
}

/// Tokens a second of the same texts as streams over HTTP, from the first request to the last byte.
double served_speed(const Subject& subject, int64_t streams, int64_t tokens) {
  std::vector<Client> clients;
  std::vector<pollfd> waits;
  for (int64_t i = 0; i < streams; ++i) {
    clients.emplace_back(subject.server.port());
    waits.push_back({clients.back().socket(), POLLIN, 0});
  }
  const auto begin = Clock::now();
  for (int64_t i = 0; i < streams; ++i) clients[static_cast<size_t>(i)].post(body_of(kTokens, i, true));
  for (int64_t left = streams; left > 0;) {
    ::poll(waits.data(), waits.size(), -1);
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents == 0 || !clients[i].read_until("[DONE]\n\n\r\n0\r\n\r\n")) continue;
      waits[i].fd = -1;
      --left;
    }
  }
  return static_cast<double>(tokens) / seconds_since(begin);
}

/// Tokens that the texts of so many streams have: fewer than asked for where one ends by itself.
int64_t tokens_of(const infer::TextSession& text, int64_t streams) {
  int64_t tokens = 0;
  for (int64_t seed = 0; seed < streams; ++seed) {
    infer::TextSession own = text;
    own.session().set_sampling({.temperature = 1.0, .seed = seed});
    own.feed(kPrompt);
    tokens += own.generate({.max_tokens = kTokens}, [](std::string_view) { return true; });
  }
  return tokens;
}

base::Node bench_streams(const Subject& subject, int64_t repeats, base::TextTable& table, Bars& bars) {
  base::Node results = base::Node::array();
  for (const int64_t streams : kStreams) {
    const int64_t tokens = tokens_of(subject.text, streams);
    std::vector<double> alone, served, shares;
    for (int64_t round = -1; round < repeats; ++round) {
      const double mine = scheduler_speed(subject.text, streams), over_http = served_speed(subject, streams, tokens);
      if (round < 0) continue;  // warm-up
      alone.push_back(mine);
      served.push_back(over_http);
      shares.push_back(over_http / mine);
    }
    const Rounds share = rounds_of(shares);
    bars.at_least("serving", "streams", share.median, fmt::format("{} streams over HTTP, of the scheduler", streams));
    table.add_row({fmt::format("{} streams, tokens/s", streams), fmt::format("{:.0f}", median(alone)),
                   fmt::format("{:.0f}", median(served)), range_text(share)});
    results.push_back(base::Node::table({{"streams", streams},
                                         {"scheduler", as_node(rounds_of(alone))},
                                         {"served", as_node(rounds_of(served))},
                                         {"share", as_node(share)}}));
  }
  return results;
}

struct Healthy {
  double health = 0, one_token = 0;  ///< seconds, of 99 in 100 requests at most
};

/// Clients whose requests are answered at once.
Healthy healthy_clients(const Subject& subject) {
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) clients.emplace_back(subject.server.port());
  const std::string body = body_of(1, 1, false);
  const std::string health = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
                    one = fmt::format("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}",
                                      body.size(), body);
  std::vector<double> of_health, of_one;
  for (int round = 0; round < kHealthyRounds; ++round) {
    Client& client = clients[static_cast<size_t>(round) % clients.size()];
    of_health.push_back(client.ask(health, "\"ok\"}"));
    of_one.push_back(client.ask(one, "\"total_tokens\":"));
  }
  const auto worst = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return values[values.size() * 99 / 100];
  };
  return {worst(of_health), worst(of_one)};
}

/// Each sends the header of a request byte by byte, two a second at times of its own, until `stop`.
void send_slowly(const std::vector<Client>& clients, const std::atomic<bool>& stop) {
  const auto pause = std::chrono::microseconds(500'000 / kSlow);
  auto next = Clock::now();
  for (size_t i = 0; !stop; ++i) {
    (void)clients[i % clients.size()].send("G");  // one whose deadline has passed is closed
    std::this_thread::sleep_until(next += pause);
  }
}

base::Node bench_slow_clients(const Subject& subject, base::TextTable& table, Bars& bars) {
  const Healthy idle = healthy_clients(subject);
  const int64_t memory = base::resident_memory();
  std::vector<Client> slow, silent;
  for (int i = 0; i < kSlow; ++i) slow.emplace_back(subject.server.port());
  std::atomic<bool> stop = false;
  std::thread sender([&] { send_slowly(slow, stop); });
  int64_t most = 0;
  std::thread watcher([&] {
    for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      most = std::max(most, base::resident_memory() - memory);
  });
  for (int i = 0; i < kSilent; ++i) {
    silent.emplace_back(subject.server.port(), 16 << 10);
    silent.back().post(body_of(kSilentTokens, i, true));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Healthy beside = healthy_clients(subject);  // while what nobody reads is written
  const auto begin = Clock::now();
  while (subject.server.writing() > 0 && seconds_since(begin) < 60)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const bool all_held = subject.server.writing() == 0;
  const Healthy held = healthy_clients(subject);
  const int64_t grown = base::resident_memory() - memory;
  stop = true;
  sender.join();
  watcher.join();
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  bars.at_most("serving", "slow_memory", mib(grown), "MiB for slow clients");
  bars.at_most("serving", "slow_memory", mib(most), "MiB at most while their texts are written");
  const auto milliseconds = [](double seconds) { return fmt::format("{:.2f} ms", 1e3 * seconds); };
  const auto row = [&](const char* name, double before, double while_written, double after) {
    const double target = 2 * before + 1e-3;
    bars.at_most("serving", "slow_clients", after / target,
                 fmt::format("{} beside slow clients: of 2 x idle + 1 ms", name));
    table.add_row({fmt::format("99 % of {}", name), milliseconds(before), milliseconds(after),
                   fmt::format("target {}; while texts are written: {}", milliseconds(target),
                               milliseconds(while_written))});
  };
  row("/health", idle.health, beside.health, held.health);
  row("one token", idle.one_token, beside.one_token, held.one_token);
  table.add_row({"more memory", "", fmt::format("{} MiB", grown >> 20),
                 fmt::format("target 64 MiB; {}; {} MiB at most while texts are written",
                             all_held ? "all texts held" : "texts still written", most >> 20)});
  return base::Node::table({{"idle", base::Node::array({idle.health, idle.one_token})},
                            {"beside", base::Node::array({beside.health, beside.one_token})},
                            {"held", base::Node::array({held.health, held.one_token})},
                            {"all_held", all_held},
                            {"memory", base::Node::array({most, grown})}});
}

}  // namespace

std::vector<std::string> serving_case_names() { return {"streams", "slow_clients"}; }

BenchReport bench_serving(const BenchArguments& arguments, Bars& bars) {
  base::require(!arguments.model.empty(), "serving: expected --model FOLDER");
  const Subject subject(arguments.model);
  base::TextTable table({"", "alone", "served", ""}, {base::TextTable::Align::left, base::TextTable::Align::right,
                                                      base::TextTable::Align::right, base::TextTable::Align::left});
  BenchReport report;
  report.figures = base::Node::table({{"model", arguments.model}});
  if (arguments.wants("streams"))
    report.figures.set("streams", bench_streams(subject, arguments.repeats, table, bars));
  if (arguments.wants("slow_clients")) report.figures.set("slow_clients", bench_slow_clients(subject, table, bars));
  report.text = table.text() +
                fmt::format("\nstreams: of {} tokens, beside the scheduler alone, in turns. The last two or three "
                            "rows: beside {} clients that send a byte every half second and {} that do not read\n",
                            kTokens, kSlow, kSilent);
  return report;
}

}  // namespace mnemo::bench
