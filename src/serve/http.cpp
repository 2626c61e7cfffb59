#include "serve/http.h"

#include <charconv>

#include "base/json_value.h"

namespace mnemo::serve {

const std::string& Request::header(const std::string& name) const {
  static const std::string none;
  const auto found = headers.find(name);
  return found == headers.end() ? none : found->second;
}

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Error" : "Internal Server Error";
  }
}

std::optional<std::string> percent_decoded(std::string_view part) {
  std::string out;
  for (size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      out += part[i];
      continue;
    }
    const std::string_view digits = part.substr(i + 1, 2);
    uint8_t byte = 0;
    if (digits.size() < 2 || std::from_chars(digits.begin(), digits.end(), byte, 16).ptr != digits.end()) return {};
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

Response error_response(int status, std::string_view message, std::string_view code, std::string_view param) {
  const auto or_null = [](std::string_view text) { return text.empty() ? base::Node() : base::Node(text); };
  const char* type = status >= 500 ? "server_error" : "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 429) type = "rate_limit_error";
  Response response;
  response.status = status;
  response.body = base::to_json(base::Node::table({{"error", base::Node::table({{"message", base::json_text(message)},
                                                                                {"type", type},
                                                                                {"param", or_null(param)},
                                                                                {"code", or_null(code)}})}}),
                                -1);
  if (status == 429 || status == 503 || status == 409) response.headers.emplace_back("Retry-After", "1");
  return response;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

}  // namespace mnemo::serve
