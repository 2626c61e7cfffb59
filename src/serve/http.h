#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnemo::serve {

/// A request of HTTP/1.1, read whole.
struct Request {
  std::string method, path, query, body;
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string remote;                          ///< address of the client
  const std::string& header(const std::string& name) const;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Response {
  int status = 200;
  std::string body = {};
  std::string type = "application/json";
  Headers headers = {};
};

/// One request's way back to its client. Any thread may call it; nothing is said to a client that is gone.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The whole answer.
  virtual void respond(Response response) = 0;
  /// Or an answer in parts: start(), write() any number of times, finish(). Its head leaves with the first part; parts
  /// that come within two milliseconds of others leave together.
  virtual void start(int status, std::string type, Headers headers) = 0;
  virtual void write(std::string part) = 0;
  virtual void finish() = 0;
  /// Breaks off: the client sees that the answer is not whole.
  virtual void abort() = 0;
  virtual bool closed() const = 0;  ///< the client is gone, or the answer is finished
  /// Bytes that have been written and that the network has not taken yet.
  virtual size_t unsent() const = 0;
  /// Called once if the client leaves before the answer is finished, or the request lasts too long.
  virtual void on_close(std::function<void()> callback) = 0;
  /// Called now or later, once all that was written has been taken, and whenever that is so again.
  virtual void on_drained(std::function<void()> callback) = 0;
};

struct HttpLimits {
  size_t header_bytes = 16 << 10, target_bytes = 8 << 10, body_bytes = 8 << 20;
  /// A PUT to this path, which brings a session, may be larger if its header says so, on so many connections at a time.
  std::string put_path = "/v1/sessions";
  size_t put_bytes = 64 << 20, large_puts = 4;
  size_t header_fields = 100;
  size_t connections = 1024;
  /// Seconds for the header once it has begun, the body, a write without progress, a connection between requests, and
  /// a request from its body's end to the last byte of its answer.
  double header_s = 10, body_s = 30, write_s = 10, idle_s = 60, request_s = 600;
};

using Handler = std::function<void(Request request, std::shared_ptr<Exchange> exchange)>;
/// Whether the body of a request without it is read. If not, the handler gets the request without its body, and the
/// connection ends with the answer.
using ReadsBody = std::function<bool(const Request& request)>;
/// Told of requests that never reach the handler: the status that they were refused with.
using Refused = std::function<void(int status)>;
/// The answer in the form that refusals of the API have.
Response error_response(int status, std::string_view message, std::string_view code = {}, std::string_view param = {});
/// "Not Found"
std::string_view reason_of(int status);

/// An HTTP/1.1 server in one thread of its own. Keeps connections open, reads one request after the other, and notices
/// within milliseconds when a client leaves. TLS is a proxy's.
class HttpServer {
 public:
  /// Binds; port 0 takes a free one. Throws InputError naming the address if that fails.
  HttpServer(const std::string& host, int64_t port, const HttpLimits& limits, ReadsBody reads_body, Handler handler,
             Refused refused);
  ~HttpServer();
  int64_t port() const;
  int64_t connections() const;
  /// Requests whose answers are not sent to their last byte.
  int64_t answering() const;
  /// Ends the thread: nothing is called any more, and what is written goes nowhere.
  void stop();
  /// Accepts no more connections; those that are open go on.
  void stop_accepting();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A part of a URL with the bytes that its %XX stand for; nothing if two hexadecimal digits do not follow a '%'.
std::optional<std::string> percent_decoded(std::string_view part);

/// Whether an address is of this machine alone ("127.0.0.1", "::1", "localhost").
bool is_loopback(const std::string& host);

}  // namespace mnemo::serve
