// Boost stays in this source and in redis_store.cpp: Asio for the sockets, Beast for reading requests.
#include "serve/http.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/error.h"
#include "serve/live_exchange.h"

namespace mnemo::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

class Connection;

/// The server's thread, as answers reach it.
class Handover final : public ServerThread {
 public:
  explicit Handover(asio::io_context& io) : io_(io), timer_(io) {}
  void post(std::function<void()> call) override { asio::post(io_, std::move(call)); }
  void put(std::shared_ptr<LiveExchange> live) override {
    {
      const std::scoped_lock lock(mutex_);
      if (stopped_) return;
      lives_.push_back(std::move(live));
      if (std::exchange(awake_, true)) return;
    }
    post([this] { take(); });
  }
  /// Lets go of all: nothing is sent any more.
  void stop() {
    std::vector<std::shared_ptr<LiveExchange>> lives;
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    lives.swap(lives_);
  }

 private:
  static constexpr std::chrono::milliseconds kPause{2};
  /// Passes on what is kept: at once, and while more comes, every kPause. So a fast stream costs its writer no system
  /// call a token, and what comes within a pause leaves in one write.
  void take() {
    std::vector<std::shared_ptr<LiveExchange>> lives;
    {
      const std::scoped_lock lock(mutex_);
      lives.swap(lives_);
      if (lives.empty()) {
        awake_ = false;
        return;
      }
    }
    for (const auto& live : lives) live->pass_on();
    timer_.expires_after(kPause);
    timer_.async_wait([this](error_code error) {
      if (!error) take();
    });
  }

  asio::io_context& io_;
  asio::steady_timer timer_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<LiveExchange>> lives_;
  bool awake_ = false;  // take() comes
  bool stopped_ = false;
};

struct Shared {
  HttpLimits limits;
  Handover* handover = nullptr;
  ReadsBody reads_body;
  Handler handler;
  Refused refused;
  std::atomic<int64_t> connections = 0, answering = 0;
  size_t large_puts = 0;       // in the server's thread
  std::set<Connection*> open;  // in the server's thread
};

class Connection final : public AnswerSink, public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : socket_(std::move(socket)),
        shared_(std::move(shared)),
        timer_(socket_.get_executor()),
        write_timer_(socket_.get_executor()) {
    ++shared_->connections;
    shared_->open.insert(this);
    error_code ignored;
    remote_ = socket_.remote_endpoint(ignored).address().to_string();
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    // Else the kernel takes megabytes for a client that does not read, before its texts are held.
    const int unsent = 64 << 10;
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  }
  ~Connection() override {
    --shared_->connections;
    if (large_put_) --shared_->large_puts;
    shared_->open.erase(this);
  }

  /// Lets go of a request that will not be answered, since each holds the other. Nobody is told.
  void drop() {
    if (const auto live = std::exchange(current_, nullptr)) {
      live->ended();
      --shared_->answering;
    }
    out_.clear();
  }

  void await_request() {
    current_.reset();
    if (buffer_.size() > 0) return read_header();
    deadline(timer_, shared_->limits.idle_s, [](Connection& self) { self.close(); });
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (!error && self->socket_.is_open()) self->read_header();
    });
  }

  void send(std::shared_ptr<LiveExchange> live, std::string bytes) override {
    if (!socket_.is_open() || live != current_) return live->sent(bytes.size());
    // Behind what is being written; in parts, since a text that grows takes up to twice its size.
    if (out_.size() > 1 && out_.back().first == live && out_.back().second.size() < kPart) {
      out_.back().second += bytes;
    } else {
      out_.emplace_back(std::move(live), std::move(bytes));
    }
    if (!writing_) write_now();
  }
  void end(const std::shared_ptr<LiveExchange>& live, bool whole) override {
    if (live != current_) return;
    ended_ = true;
    if (!whole) return close();
    if (!writing_) next();
  }

 private:
  static constexpr size_t kPart = 16 << 10;  // bytes
  using Action = void (*)(Connection&);
  void deadline(asio::steady_timer& timer, double seconds, Action action) {
    timer.expires_after(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
    timer.async_wait([weak = weak_from_this(), action](error_code error) {
      if (const auto self = weak.lock(); self && !error) action(*self);
    });
  }

  void read_header() {
    const HttpLimits& limits = shared_->limits;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(limits.header_bytes));
    parser_->body_limit(limits.put_bytes);  // until the method is known
    if (std::exchange(large_put_, false)) --shared_->large_puts;
    deadline(timer_, limits.header_s, [](Connection& self) { self.refuse(408, "the header took too long"); });
    http::async_read_header(socket_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) { self->has_header(error); });
  }

  void has_header(error_code error) {
    if (refused_ || !socket_.is_open()) return;
    if (error) return refuse(error);
    const auto& message = parser_->get();
    const HttpLimits& limits = shared_->limits;
    if (static_cast<size_t>(std::distance(message.begin(), message.end())) > limits.header_fields)
      return refuse(431, fmt::format("expected at most {} header fields", limits.header_fields));
    if (message.target().size() > limits.target_bytes)
      return refuse(414, fmt::format("expected a target of at most {} bytes", limits.target_bytes));
    // Another coding would leave the body to be read as the next request (RFC 9112, 6.3).
    if (const auto coding = message[http::field::transfer_encoding];
        !coding.empty() && !boost::beast::iequals(coding, "chunked"))
      return refuse(400, "expected Transfer-Encoding 'chunked', or none with a Content-Length");
    note_request();
    if (!parser_->is_done() && !shared_->reads_body(request_)) return dispatch(false);
    if (parser_->content_length_remaining().value_or(0) > limits.body_bytes) {
      if (message.method() != http::verb::put || request_.path != limits.put_path)
        return refuse(http::error::body_limit);
      if (shared_->large_puts >= limits.large_puts)
        return refuse(503, "other sessions are being read; try again later");
      large_put_ = true;
      ++shared_->large_puts;
    } else {
      parser_->body_limit(limits.body_bytes);
    }
    deadline(timer_, limits.body_s, [](Connection& self) { self.refuse(408, "the body took too long"); });
    if (message.version() >= 11 && boost::beast::iequals(message[http::field::expect], "100-continue") &&
        !parser_->is_done()) {
      static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
      asio::async_write(socket_, asio::buffer(kGoOn), [self = shared_from_this()](error_code failed, size_t) {
        if (!failed) self->read_body();
      });
      return;
    }
    read_body();
  }

  void read_body() {
    http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
      if (self->refused_ || !self->socket_.is_open()) return;
      if (error) return self->refuse(error);
      self->dispatch(true);
    });
  }

  /// request_: what the header says.
  void note_request() {
    const auto& message = parser_->get();
    request_ = {};
    request_.method = std::string(message.method_string());
    const std::string target(message.target());
    request_.path = target.substr(0, target.find('?'));
    if (const size_t mark = target.find('?'); mark != std::string::npos) request_.query = target.substr(mark + 1);
    for (const auto& field : message)
      request_.headers.emplace(base::lower_case(std::string(field.name_string())), std::string(field.value()));
    request_.remote = remote_;
  }

  /// whole: with its body.
  void dispatch(bool whole) {
    auto message = parser_->release();
    if (whole) request_.body = std::move(message.body());
    ended_ = false;
    const bool http_1_1 = message.version() >= 11;  // an older client would need to be told that it may go on
    current_ = std::make_shared<LiveExchange>(shared_from_this(), *shared_->handover,
                                              whole && http_1_1 && message.keep_alive(), http_1_1,
                                              request_.method == "HEAD");
    deadline(timer_, shared_->limits.request_s, [](Connection& self) { self.close(); });
    ++shared_->answering;
    watch(current_);
    shared_->handler(std::move(request_), current_);
  }

  /// Notices that the client leaves while it waits for its answer.
  void watch(const std::shared_ptr<LiveExchange>& live) {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), live](error_code error) {
      if (error || live != self->current_ || !self->socket_.is_open()) return;
      char next = 0;
      const ssize_t found = ::recv(self->socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
      if (found == 0 || (found < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return self->close();
      if (found < 0) self->watch(live);
      // Else the next request is here already: whether the client leaves is seen when something is written.
    });
  }

  /// Writes what the network takes at once, and the rest when it takes more. So an answer that its client reads costs
  /// neither a timer nor a round of the loop.
  void write_now() {
    error_code error;
    const size_t count = socket_.write_some(asio::buffer(out_.front().second), error);
    if (error == asio::error::would_block) return write_some();
    writing_ = true;
    wrote(error, count);
  }

  void write_some() {
    writing_ = true;
    deadline(write_timer_, shared_->limits.write_s, [](Connection& self) { self.close(); });
    socket_.async_write_some(
        asio::buffer(out_.front().second.data() + written_, out_.front().second.size() - written_),
        [self = shared_from_this()](error_code error, size_t count) { self->wrote(error, count); });
  }

  void wrote(error_code error, size_t count) {
    if (!socket_.is_open()) return;
    if (error) return close();
    written_ += count;
    const auto live = out_.front().first;
    if (written_ == out_.front().second.size()) {
      out_.pop_front();
      written_ = 0;
    }
    if (live) live->sent(count);
    if (!out_.empty()) return write_some();
    writing_ = false;
    write_timer_.cancel();
    if (ended_) next();
  }

  /// After an answer.
  void next() {
    const bool keeps = current_ && current_->keeps();
    if (current_) {
      current_->ended();
      --shared_->answering;
    }
    current_.reset();
    ended_ = false;
    timer_.cancel();
    if (keeps) return await_request();
    linger();
  }

  /// Closes after what the client still sends, or it might lose the answer.
  void linger() {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    deadline(timer_, 2, [](Connection& self) { self.close(); });
    discard();
  }
  void discard() {
    static std::array<char, 4096> discarded;  // of all connections: nobody reads it
    socket_.async_read_some(asio::buffer(discarded), [self = shared_from_this()](error_code error, size_t count) {
      if (error || (self->lingered_ += count) > (size_t{16} << 20)) return self->close();
      self->discard();
    });
  }

  void refuse(error_code error) {
    const HttpLimits& limits = shared_->limits;
    if (error == http::error::header_limit)
      return refuse(431, fmt::format("expected a header of at most {} bytes", limits.header_bytes));
    if (error == http::error::body_limit)
      return refuse(413, fmt::format("expected a body of at most {} bytes, of PUT {} at most {} by its Content-Length",
                                     limits.body_bytes, limits.put_path, limits.put_bytes));
    if (error == http::error::end_of_stream || error == http::error::partial_message) return close();
    if (error.category() == http::make_error_code(http::error::bad_method).category())
      return refuse(400, fmt::format("not a request of HTTP: {}", error.message()));
    close();
  }

  /// Answers what is no request, and closes.
  void refuse(int status, const std::string& message) {
    if (refused_ || !socket_.is_open()) return;
    refused_ = ended_ = true;
    shared_->refused(status);
    out_.emplace_back(nullptr, text_of(error_response(status, message), false));
    if (!writing_) write_now();
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
    write_timer_.cancel();
    if (const auto live = std::exchange(current_, nullptr)) {
      live->gone();
      live->ended();
      --shared_->answering;
    }
    out_.clear();
  }

  tcp::socket socket_;
  std::shared_ptr<Shared> shared_;
  asio::steady_timer timer_, write_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool large_put_ = false;
  Request request_;
  std::shared_ptr<LiveExchange> current_;
  std::deque<std::pair<std::shared_ptr<LiveExchange>, std::string>> out_;
  size_t written_ = 0, lingered_ = 0;
  bool writing_ = false, ended_ = false, refused_ = false;
  std::string remote_;
};

}  // namespace

struct HttpServer::Impl {
  explicit Impl(std::shared_ptr<Shared> everything)
      : shared(std::move(everything)), acceptor(io), pause(io), handover(io) {
    shared->handover = &handover;
  }

  void accept() {
    acceptor.async_accept([this](error_code error, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (error) {  // too many open files, say: later
        pause.expires_after(std::chrono::milliseconds(100));
        return pause.async_wait([this](error_code stopped) {
          if (!stopped) accept();
        });
      }
      if (shared->connections >= static_cast<int64_t>(shared->limits.connections)) {
        const std::string answer = text_of(error_response(503, "too many connections", "too_many_connections"), false);
        shared->refused(503);
        ::send(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      } else {
        std::make_shared<Connection>(std::move(socket), shared)->await_request();
      }
      accept();
    });
  }

  std::shared_ptr<Shared> shared;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer pause;
  Handover handover;
  std::thread thread;
};

HttpServer::HttpServer(const std::string& host, int64_t port, const HttpLimits& limits, ReadsBody reads_body,
                       Handler handler, Refused refused) {
  auto shared = std::make_shared<Shared>();
  shared->limits = limits;
  shared->reads_body = std::move(reads_body);
  shared->handler = std::move(handler);
  shared->refused = std::move(refused);
  impl_ = std::make_unique<Impl>(shared);
  try {
    const auto found = tcp::resolver(impl_->io).resolve(host, std::to_string(port), tcp::resolver::passive);
    const tcp::endpoint endpoint = found.begin()->endpoint();
    impl_->acceptor.open(endpoint.protocol());
    impl_->acceptor.set_option(asio::socket_base::reuse_address(true));
    impl_->acceptor.bind(endpoint);
    impl_->acceptor.listen(1024);
  } catch (const boost::system::system_error& error) {
    base::input_error("serve: cannot listen on {} port {}: {}; choose another --port or --host", host, port,
                      error.code().message());
  }
  impl_->accept();
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
  impl_->io.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->handover.stop();
  const std::set<Connection*> left = std::exchange(impl_->shared->open, {});
  for (Connection* connection : left) connection->shared_from_this()->drop();
}

int64_t HttpServer::port() const { return impl_->acceptor.local_endpoint().port(); }
int64_t HttpServer::connections() const { return impl_->shared->connections; }
int64_t HttpServer::answering() const { return impl_->shared->answering; }

void HttpServer::stop_accepting() {
  asio::post(impl_->io, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor.close(ignored);
  });
}

}  // namespace mnemo::serve
