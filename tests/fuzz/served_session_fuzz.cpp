// A stored session of `mnemo serve` with changes: continued, or refused as one that is not there.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "../unit/infer/fake_model.h"
#include "mutated.h"
#include "options_check.h"
#include "serve/sessions.h"
#include "text/open_tokenizer.h"

namespace {

using namespace mnemo;

/// One session in memory.
class OneSession : public serve::SessionStore {
 public:
  explicit OneSession(std::shared_ptr<Stored> stored) : stored_(std::move(stored)) {}
  std::optional<Stored> get(const std::string&) override { return *stored_; }
  int64_t touch(const std::string&) override { return stored_->version; }
  bool put(const std::string&, const std::string& bytes, int64_t, int64_t) override {
    *stored_ = {bytes, stored_->version + 1};
    return true;
  }
  void remove(const std::string&) override {}

 private:
  std::shared_ptr<Stored> stored_;
};

serve::Sessions sessions_in(const std::shared_ptr<serve::SessionStore::Stored>& stored) {
  static const auto model = std::make_shared<const test::FakeModel>(256, 4);
  return {{.durable = true},
          {infer::Session(model, {.temperature = 0}), text::make_byte_tokenizer()},
          std::make_unique<OneSession>(stored)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto stored = std::make_shared<serve::SessionStore::Stored>();
  static const std::string id = [] {
    serve::Sessions sessions = sessions_in(stored);
    infer::TextSession text(infer::Session(std::make_shared<const test::FakeModel>(256, 4), {.temperature = 0}),
                            text::make_byte_tokenizer());
    const std::string created = sessions.create(text, {}, 100);
    text = sessions.begin(created, {}, 100);
    text.feed("abcde");
    sessions.commit(created, text, "key", "answer", 100);
    sessions.mark(created, "here", 100);
    return created;
  }();
  static const std::string whole = stored->bytes;
  *stored = {fuzz::mutated(whole, data, size), 7};
  serve::Sessions sessions = sessions_in(stored);
  try {
    infer::TextSession text = sessions.begin(id, {}, 100);
    text.feed("f");
    sessions.commit(id, text, "", "", 100);
    sessions.rewind(id, "undo", 100);
  } catch (const serve::ApiError& error) {
    fuzz::demand(error.status == 404, "status 404");
    fuzz::check_message(error.what());
  }
  return 0;
}
