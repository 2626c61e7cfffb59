#include "serve/sessions.h"

#include <gtest/gtest.h>

#include <map>

#include "serve/session_folder.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/fake_model.h"
#include "tests/unit/serve/refusal.h"
#include "text/open_tokenizer.h"

namespace mnemo::serve {
namespace {

const auto& fake_model() {
  static const auto model = std::make_shared<const test::FakeModel>(256, 4);
  return model;
}

infer::TextSession byte_text() {
  return {infer::Session(fake_model(), {.temperature = 0}), text::make_byte_tokenizer()};
}

infer::TextSession fed(const infer::TextSession& text, const std::string& more) {
  infer::TextSession next = text;
  next.feed(more);
  return next;
}

TEST(Sessions, OfTwoServersContinueOneAnother) {
  test::TemporaryFolder folder;
  const SessionOptions options{.folder = folder.path(), .durable = true};
  Sessions one(options, byte_text(), open_store(options)), other(options, byte_text(), open_store(options));
  const std::string id = one.create(byte_text(), {}, 100);
  one.commit(id, fed(one.begin(id, {}, 100), "abc"), "key", "answer", 100);
  EXPECT_EQ(other.begin(id, 3, 100).session().position(), 3);
  EXPECT_EQ(other.result(id, "key", 100), "answer");
  // Both continue the same version: the second to finish is refused, and then has what the first has stored.
  const infer::TextSession seen = one.begin(id, {}, 100);
  other.commit(id, fed(seen, "de"), "", "", 100);
  EXPECT_EQ(refusal([&] { one.commit(id, fed(seen, "other"), "", "", 100); }),
            std::pair(409, std::string("session_changed")));
  const infer::TextSession after = one.begin(id, {}, 100);
  EXPECT_EQ(after.session().position(), 5);
  EXPECT_EQ(after.save_bytes(), fed(fed(byte_text(), "abc"), "de").save_bytes());
  one.release(id);
  // A mark is a change, too.
  other.mark(id, "here", 100);
  one.rewind(id, "here", 100);
  EXPECT_EQ(other.facts(id, 100).at("version").as_int(), 4);
  one.remove(id);
  EXPECT_EQ(refusal([&] { other.begin(id, {}, 100); }).first, 404);
}

TEST(Sessions, TellOfWhatAStoreCannotRead) {
  test::TemporaryFolder folder;
  const SessionOptions options{.folder = folder.path(), .durable = true};
  Sessions sessions(options, byte_text(), open_store(options));
  const std::string id = sessions.create(byte_text(), {}, 100);
  SessionFolder store(folder.path());
  for (const std::string& bytes : {std::string(), std::string("{}\n"), store.get(id)->bytes.substr(0, 300),
                                   "{\"format\": \"mnemo-served-session/1\"}\n" + store.get(id)->bytes}) {
    ASSERT_TRUE(store.put(id, bytes, store.touch(id), 60));
    EXPECT_EQ(refusal([&] { sessions.begin(id, {}, 100); }).first, 404) << bytes.substr(0, 80);
  }
}

/// Sessions in memory, as a store.
class MemoryStore : public SessionStore {
 public:
  std::optional<Stored> get(const std::string& id) override { return all_.at(id); }
  int64_t touch(const std::string& id) override { return all_.contains(id) ? all_[id].version : 0; }
  bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t) override {
    all_[id] = {bytes, expected + 1};
    return true;
  }
  void remove(const std::string& id) override { all_.erase(id); }
  std::map<std::string, Stored> all_;
};

TEST(Sessions, TryOutOnlyBytesThatTheyHaveNotWrittenThemselves) {
  auto store = std::make_unique<MemoryStore>();
  MemoryStore& stored = *store;
  // Memory for one session and its last version: the other leaves it.
  Sessions sessions({.memory = 3 * fed(byte_text(), "abcdef").session().num_bytes()}, byte_text(), std::move(store));
  std::string ids[2];
  for (std::string& id : ids) {
    id = sessions.create(byte_text(), {}, 100);
    sessions.commit(id, fed(sessions.begin(id, {}, 100), "abcdef"), "", "", 100);
    sessions.commit(id, fed(sessions.begin(id, {}, 100), "gh"), "", "", 100);
  }
  const auto passes_of_reading = [&](const std::string& id) {
    const int64_t before = fake_model()->calls;
    const std::string bytes = sessions.begin(id, 8, 100).save_bytes();
    sessions.release(id);
    const int64_t passes = fake_model()->calls - before;
    EXPECT_EQ(bytes, fed(fed(byte_text(), "abcdef"), "gh").save_bytes());
    return passes;
  };
  EXPECT_EQ(passes_of_reading(ids[1]), 0) << "it is in memory";
  const int64_t own = passes_of_reading(ids[0]);
  ASSERT_TRUE(stored.all_.contains(ids[1]));
  std::string& bytes = stored.all_[ids[1]].bytes;
  bytes.insert(bytes.find('{') + 1, " ");
  EXPECT_LT(own, passes_of_reading(ids[1]));
  EXPECT_EQ(passes_of_reading(ids[0]), own);
  EXPECT_EQ(passes_of_reading(ids[1]), own) << "what has been tried out once is known";
}

TEST(Sessions, TheLeastRecentlyUsedLeaveMemory) {
  auto store = std::make_unique<MemoryStore>();
  MemoryStore& stored = *store;
  const int64_t size = fed(byte_text(), "abcdef").session().num_bytes();
  Sessions sessions({.memory = 5 * size}, byte_text(), std::move(store));
  std::vector<std::string> ids;
  const auto create = [&] { ids.push_back(sessions.create(fed(byte_text(), "abcdef"), {}, 100)); };
  const auto use = [&](const std::string& id) {
    sessions.begin(id, {}, 100);
    sessions.release(id);
  };
  for (int i = 0; i < 5; ++i) create();
  EXPECT_TRUE(stored.all_.empty());
  use(ids[0]);
  create();
  EXPECT_EQ(sessions.bytes(), 5 * size);
  EXPECT_EQ(stored.all_.size(), 1u);
  EXPECT_TRUE(stored.all_.contains(ids[1]));
  sessions.begin(ids[2], {}, 100);  // busy: it stays, however long it is not used
  for (const size_t i : {3, 0, 4, 5}) use(ids[i]);
  create();
  EXPECT_FALSE(stored.all_.contains(ids[2]));
  EXPECT_TRUE(stored.all_.contains(ids[3]));
}

}  // namespace
}  // namespace mnemo::serve
