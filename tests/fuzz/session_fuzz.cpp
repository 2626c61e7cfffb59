#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "../unit/infer/fake_model.h"
#include "infer/session.h"
#include "mutated.h"
#include "options_check.h"

/// A saved session with changes: loaded and continued, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const auto model = std::make_shared<const test::FakeModel>(11, 4);
  static const std::string saved = [] {
    infer::Session session(model);
    session.feed(std::vector<std::int64_t>{1, 4, 2, 7, 3, 9});
    session.next();
    return session.save_bytes();
  }();
  fuzz::only_input_errors([&] {
    infer::Session session = infer::Session::load_bytes(fuzz::mutated(saved, data, size), model);
    session.feed(std::vector<std::int64_t>{5});
    const std::int64_t token = session.next();
    fuzz::demand(token >= 0 && token < 11, "a token of the vocabulary");
  });
  return 0;
}
