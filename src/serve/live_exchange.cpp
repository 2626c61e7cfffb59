#include "serve/live_exchange.h"

#include <utility>

#include <fmt/format.h>

namespace mnemo::serve {
namespace {

std::string head_of(int status, std::string_view type, const Headers& headers, bool keeps) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", status, reason_of(status), type);
  for (const auto& [name, value] : headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!keeps) head += "Connection: close\r\n";
  return head;
}

}  // namespace

std::string text_of(const Response& response, bool keeps, bool is_head) {
  std::string text = head_of(response.status, response.type, response.headers, keeps) +
                     fmt::format("Content-Length: {}\r\n\r\n", response.body.size());
  if (!is_head) text += response.body;
  return text;
}

LiveExchange::LiveExchange(std::shared_ptr<AnswerSink> sink, ServerThread& thread, bool keeps, bool chunks,
                           bool is_head)
    : sink_(std::move(sink)), thread_(thread), keeps_(keeps), chunks_(chunks), is_head_(is_head) {}

void LiveExchange::respond(Response response) {
  keep(text_of(response, keeps_, is_head_));
  end(true);
}

void LiveExchange::start(int status, std::string type, Headers headers) {
  keeps_ = keeps_ && chunks_;
  keep(head_of(status, type, headers, keeps_) + (chunks_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"));
}

void LiveExchange::write(std::string part) {
  if (part.empty()) return;
  keep(chunks_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : part);
  if (!closed_ && !awaited_.exchange(true)) thread_.put(shared_from_this());
}

void LiveExchange::finish() {
  if (chunks_) keep("0\r\n\r\n");
  end(true);
}

void LiveExchange::on_close(std::function<void()> callback) {
  thread_.post([self = shared_from_this(), callback = std::move(callback)]() mutable {
    if (self->gone_) return callback();
    self->close_callback_ = std::move(callback);
  });
}

void LiveExchange::on_drained(std::function<void()> callback) {
  thread_.post([self = shared_from_this(), callback = std::move(callback)]() mutable {
    self->drained_callback_ = std::move(callback);
    self->sent(0);  // it may all be taken by now
  });
}

void LiveExchange::pass_on() {
  awaited_ = false;  // first: what is kept from now on is passed on later, if not now
  std::string bytes;
  {
    const std::scoped_lock lock(mutex_);
    bytes.swap(kept_);
  }
  if (bytes.empty()) return;
  if (const auto sink = sink_) return sink->send(shared_from_this(), std::move(bytes));
  unsent_ -= bytes.size();
}

void LiveExchange::sent(size_t bytes) {
  unsent_ -= bytes;
  if (unsent_ == 0 && drained_callback_) drained_callback_();
}

void LiveExchange::gone() {
  gone_ = closed_ = true;
  drained_callback_ = nullptr;
  if (const auto callback = std::exchange(close_callback_, nullptr)) callback();
}

void LiveExchange::ended() {
  closed_ = true;
  close_callback_ = drained_callback_ = nullptr;
  sink_.reset();
}

void LiveExchange::keep(std::string_view bytes) {
  if (closed_) return;
  unsent_ += bytes.size();
  const std::scoped_lock lock(mutex_);
  kept_ += bytes;
}

void LiveExchange::end(bool whole) {
  if (closed_.exchange(true)) return;
  thread_.post([self = shared_from_this(), whole] {
    self->pass_on();
    // A copy: the end of an answer takes the connection from it, which may be the last to hold it.
    if (const auto sink = self->sink_) sink->end(self, whole);
  });
}

}  // namespace mnemo::serve
