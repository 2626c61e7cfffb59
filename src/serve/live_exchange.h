#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace mnemo::serve {

class LiveExchange;

/// The thread that reads and writes connections.
class ServerThread {
 public:
  virtual ~ServerThread() = default;
  /// Calls a function there.
  virtual void post(std::function<void()> call) = 0;
  /// Calls pass_on() there, soon.
  virtual void put(std::shared_ptr<LiveExchange> live) = 0;
};

/// A connection as its answer sees it, in the server's thread.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void send(std::shared_ptr<LiveExchange> live, std::string bytes) = 0;
  /// The answer is complete, or (not `whole`) is broken off.
  virtual void end(const std::shared_ptr<LiveExchange>& live, bool whole) = 0;
};

/// A request in progress on a connection: keeps what other threads write until the server's thread passes it on.
class LiveExchange final : public Exchange, public std::enable_shared_from_this<LiveExchange> {
 public:
  /// `keeps`: the connection goes on after the answer; `chunks`: the client knows chunks; `is_head`: it wants no body.
  LiveExchange(std::shared_ptr<AnswerSink> sink, ServerThread& thread, bool keeps, bool chunks, bool is_head);

  void respond(Response response) override;
  void start(int status, std::string type, Headers headers) override;
  void write(std::string part) override;
  void finish() override;
  void abort() override { end(false); }
  bool closed() const override { return closed_; }
  size_t unsent() const override { return unsent_; }
  void on_close(std::function<void()> callback) override;
  void on_drained(std::function<void()> callback) override;

  // Called in the server's thread only, from here on.
  /// Sends what is kept.
  void pass_on();
  /// The network has taken so many bytes, or they go nowhere.
  void sent(size_t bytes);
  /// The client has left.
  void gone();
  /// The answer is sent; lets go of the connection.
  void ended();
  bool keeps() const { return keeps_; }

 private:
  /// Keeps bytes for the server's thread.
  void keep(std::string_view bytes);
  void end(bool whole);

  std::shared_ptr<AnswerSink> sink_;  // in the server's thread
  ServerThread& thread_;
  bool keeps_, chunks_, is_head_, gone_ = false;
  std::atomic<bool> closed_ = false;
  std::atomic<size_t> unsent_ = 0;
  std::atomic<bool> awaited_ = false;  // the thread will pass on what is kept
  std::mutex mutex_;
  std::string kept_;
  std::function<void()> close_callback_, drained_callback_;
};

/// A whole answer as bytes; not `keeps`: the connection is closed after it; `is_head`: without the body.
std::string text_of(const Response& response, bool keeps, bool is_head = false);

}  // namespace mnemo::serve
