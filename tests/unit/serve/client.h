#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace mnemo::serve {

/// A client that writes bytes to a server with a port().
class Client {
 public:
  explicit Client(const auto& server) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(server.port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { leave(); }
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  int socket() const { return socket_; }
  void send(const std::string& bytes) const { ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// Reads until the server closes, `end` has come, or nothing has come for `wait` milliseconds.
  std::string receive(const std::string& end = "\x01", int wait = 3000) const {
    std::string all;
    for (char part[65536]; all.find(end) == std::string::npos;) {
      pollfd one{socket_, POLLIN, 0};
      if (::poll(&one, 1, wait) <= 0) return all + "<nothing>";
      const ssize_t count = ::recv(socket_, part, sizeof part, 0);
      if (count <= 0) break;
      all.append(part, static_cast<size_t>(count));
    }
    return all;
  }

 private:
  int socket_;
};

}  // namespace mnemo::serve
