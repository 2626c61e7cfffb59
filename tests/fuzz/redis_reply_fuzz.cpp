// Any bytes from Redis: a reply, a wait for more, or an InputError; fewer bytes than a reply has are never one.
#include "serve/redis_protocol.h"

#include <cstddef>
#include <cstdint>

#include "options_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::only_input_errors([&] {
    const auto read = serve::read_redis_reply(bytes);
    if (!read) return;
    fuzz::demand(read->length >= 3 && read->length <= size, "length of a reply");
    for (const std::size_t cut : {read->length - 1, read->length / 2})
      fuzz::demand(!serve::read_redis_reply(bytes.substr(0, cut)), "a part of a reply is none");
    const auto again = serve::read_redis_reply(bytes.substr(0, read->length));
    fuzz::demand(again && again->reply.kind == read->reply.kind && again->reply.text == read->reply.text, "the same");
  });
  return 0;
}
