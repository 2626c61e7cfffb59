#include "serve/sessions.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "serve/session_folder.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/fake_model.h"
#include "tests/unit/serve/refusal.h"
#include "text/open_tokenizer.h"
#include "weights/safetensors.h"

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

int64_t bytes_of_text(const std::string& text) {
  return fed(byte_text(), text).session().num_bytes() + Sessions::kTextObjects;
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

TEST(Sessions, AreAsOldAsTheirLastUseAfterARestart) {
  test::TemporaryFolder folder;
  const SessionOptions options{.folder = folder.path(), .durable = true};
  const int64_t now = std::time(nullptr);
  Sessions before(options, byte_text(), open_store(options));
  const std::string id = before.create(byte_text(), 60, now - 50);
  before.facts(id, now);
  Sessions after(options, byte_text(), open_store(options));
  const base::Node listed = after.list(now + 30).at("data");
  ASSERT_EQ(listed.items().size(), 1u);
  EXPECT_NEAR(static_cast<double>(listed.items()[0].at("expires_at").as_int()), static_cast<double>(now) + 60, 10);
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

TEST(Sessions, StayWhereTheStoreDoesNotAnswer) {
  class Away : public MemoryStore {
   public:
    std::optional<Stored> get(const std::string& id) override {
      if (away) throw ApiError(503, "no answer", "", "store_unavailable");
      return MemoryStore::get(id);
    }
    void sweep() override {
      if (away) throw ApiError(503, "no answer", "", "store_unavailable");
    }
    bool away = false;
  };
  auto store = std::make_unique<Away>();
  Away& stored = *store;
  Sessions sessions({.durable = true}, byte_text(), std::move(store));
  const std::string id = sessions.create(fed(byte_text(), "abc"), {}, 100), unknown(32, 'b');
  stored.all_[unknown] = stored.all_[id];
  ++stored.all_[id].version;  // another server has stored one
  stored.away = true;
  for (const std::string& one : {id, unknown, id})
    EXPECT_EQ(refusal([&] { sessions.begin(one, {}, 100); }), std::pair(503, std::string("store_unavailable")));
  sessions.sweep(100);
  EXPECT_EQ(sessions.count(), 1) << "what this server had not used is forgotten again";
  stored.away = false;
  for (const std::string& one : {id, unknown}) EXPECT_EQ(sessions.begin(one, 3, 100).session().position(), 3);
}

TEST(Sessions, TryOutOnlyBytesThatTheyHaveNotWrittenThemselves) {
  auto store = std::make_unique<MemoryStore>();
  MemoryStore& stored = *store;
  // Memory for one session and its last version: the other leaves it.
  Sessions sessions({.memory = 3 * bytes_of_text("abcdef")}, byte_text(), std::move(store));
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
  const int64_t size = bytes_of_text("abcdef");
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

TEST(Sessions, WithoutTokensTakeMemoryToo) {
  constexpr int64_t kMemory = 1 << 20;
  Sessions sessions({.memory = kMemory}, byte_text(), nullptr);
  const auto create = [&] { sessions.create(byte_text(), {}, 100); };
  create();
  const int64_t each = sessions.bytes();
  ASSERT_GE(each, Sessions::kTextObjects);
  for (int64_t i = 1; i < kMemory / each; ++i) create();
  EXPECT_EQ(refusal(create), std::pair(429, std::string("sessions_full")));
}

// Memory has no room for what the store has: asked for again, it is refused again and takes none.
TEST(Sessions, ThatDoNotFitAreNotLoaded) {
  test::TemporaryFolder folder;
  const SessionOptions large{.folder = folder.path(), .durable = true};
  Sessions sessions(large, byte_text(), open_store(large));
  const std::string id = sessions.create(fed(byte_text(), "abcdef"), {}, 100);
  SessionOptions small = large;
  small.memory = bytes_of_text("abcdef") - 1;
  Sessions other(small, byte_text(), open_store(small));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(refusal([&] { other.begin(id, {}, 100); }), std::pair(429, std::string("sessions_full")));
    EXPECT_EQ(other.bytes(), 0);
  }
}

TEST(Sessions, DoNotFindWhatIsNoId) {
  test::TemporaryFolder folder;
  const SessionOptions options{.folder = folder.path()};
  Sessions sessions(options, byte_text(), open_store(options));
  for (const std::string& id : {std::string(), std::string("x"), std::string("../x"), std::string(32, 'A')}) {
    const std::pair missing(404, std::string("session_not_found"));
    EXPECT_EQ(refusal([&] { sessions.begin(id, {}, 100); }), missing) << id;
    EXPECT_EQ(refusal([&] { sessions.result(id, "key", 100); }), missing) << id;
    EXPECT_EQ(refusal([&] { sessions.remove(id); }), missing) << id;
  }
}

TEST(Sessions, StoreAllThatCanBeStored) {
  class Broken : public MemoryStore {
   public:
    bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) override {
      if (all_.empty()) {
        all_["refused"] = {};
        throw ApiError(429, "no room");
      }
      return MemoryStore::put(id, bytes, expected, ttl);
    }
  };
  auto store = std::make_unique<Broken>();
  Broken& stored = *store;
  Sessions sessions({}, byte_text(), std::move(store));
  for (int i = 0; i < 3; ++i) sessions.create(byte_text(), {}, 100);
  EXPECT_EQ(sessions.save_all(), 1);
  EXPECT_EQ(stored.all_.size(), 1u + 2);
  EXPECT_EQ(sessions.save_all(), 0);
}

TEST(Sessions, AreNotPromisedToAStoreThatHasFailed) {
  class Full : public MemoryStore {
   public:
    bool put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) override {
      if (full || id == refused) throw ApiError(429, "no room", "", "sessions_full");
      return MemoryStore::put(id, bytes, expected, ttl);
    }
    bool full = true;
    std::string refused;
  };
  auto store = std::make_unique<Full>();
  Full& stored = *store;
  Sessions sessions({.save_every = 30}, byte_text(), std::move(store));
  const auto write = [&](const std::string& id) {
    return refusal([&] { sessions.commit(id, fed(sessions.begin(id, {}, 140), "a"), "", "", 140); });
  };
  const std::pair full(429, std::string("sessions_full")), none = refusal([] {});
  const std::string a = sessions.create(byte_text(), {}, 100), b = sessions.create(byte_text(), {}, 100);
  EXPECT_EQ(write(a), none) << "nobody has tried to store it yet";
  sessions.sweep(140);  // stores nothing
  EXPECT_EQ(write(a), full);
  EXPECT_EQ(refusal([&] { sessions.create(byte_text(), {}, 140); }), full);
  EXPECT_EQ(sessions.begin(a, {}, 140).session().position(), 1) << "as before";
  sessions.release(a);
  stored.full = false;
  EXPECT_EQ(write(a), none);
  EXPECT_TRUE(stored.all_.contains(a)) << "at once";
  EXPECT_EQ(write(a), none);
  EXPECT_EQ(stored.all_[a].version, 1) << "later again";
  // The session b is stored, and a is refused: a stays refused.
  stored.refused = a;
  sessions.sweep(200);
  EXPECT_TRUE(stored.all_.contains(b));
  EXPECT_EQ(write(b), none);
  EXPECT_EQ(write(a), full);
}

TEST(Sessions, TellARequestFromAnotherWithItsKey) {
  Sessions sessions({}, byte_text(), nullptr);
  const std::string id = sessions.create(byte_text(), {}, 100), first = request_key("a", "one body");
  sessions.commit(id, fed(sessions.begin(id, {}, 100), "a"), first, "answer", 100);
  sessions.commit(id, fed(sessions.begin(id, {}, 100), "b"), "old", "of an earlier version", 100);
  EXPECT_EQ(sessions.result(id, first, 100), "answer");
  EXPECT_EQ(sessions.result(id, request_key("b", "one body"), 100), std::nullopt);
  EXPECT_EQ(sessions.result(id, request_key("old", "any body"), 100), "of an earlier version");
  EXPECT_EQ(refusal([&] { sessions.result(id, request_key("a", "another body"), 100); }),
            std::pair(422, std::string("idempotency_key_reused")));
  EXPECT_EQ(request_key("", "body"), "");
}

TEST(Sessions, CountTheAnswersThatTheyKeep) {
  test::TemporaryFolder folder;
  const SessionOptions options{.folder = folder.path(), .durable = true};
  Sessions sessions(options, byte_text(), open_store(options));
  const std::string id = sessions.create(byte_text(), {}, 100), answer(Sessions::kMostResult, '"');
  const auto commit = [&](const std::string& key, const std::string& result) {
    sessions.commit(id, fed(sessions.begin(id, {}, 100), "a"), key, result, 100);
  };
  for (int i = 0; i < 10; ++i) commit(fmt::format("key {}", i), answer);
  const int64_t with = sessions.bytes(), eight = 8 * std::ssize(answer);
  EXPECT_GT(with, eight);
  EXPECT_LT(with, eight + 100'000);
  // A larger one is not kept, but never made twice; a server that starts can read all of it.
  commit("large", answer + "x");
  EXPECT_LT(sessions.bytes(), with);
  Sessions other(options, byte_text(), open_store(options));
  for (Sessions* each : {&sessions, &other}) {
    EXPECT_EQ(refusal([&] { each->result(id, "large", 100); }), std::pair(422, std::string("answer_not_kept")));
    EXPECT_EQ(each->result(id, "key 9", 100), answer);
    EXPECT_EQ(each->result(id, "key 1", 100), std::nullopt);
  }
}

TEST(Sessions, RefuseAPositionThatTheyCouldNotReadAgain) {
  const std::string saved = fed(byte_text(), "abcd").save_bytes();
  const auto at = [&](int64_t position) {
    weights::TensorFile file = weights::read_safetensors(std::string_view(saved), "session");
    file.metadata["position"] = std::to_string(position);
    return byte_text().load_bytes(weights::encode_safetensors(file.tensors, file.metadata));
  };
  Sessions sessions({}, byte_text(), nullptr);
  const std::pair refused(400, std::string("session_too_long"));
  EXPECT_EQ(refusal([&] { sessions.create(at(Sessions::kMostNumber + 4), {}, 100); }), refused);
  EXPECT_EQ(sessions.count(), 0);
  const std::string id = sessions.create(at(Sessions::kMostNumber), {}, 100);
  EXPECT_EQ(refusal([&] { sessions.commit(id, fed(sessions.begin(id, {}, 100), "a"), "", "", 100); }), refused);
  EXPECT_EQ(sessions.begin(id, {}, 100).session().position(), Sessions::kMostNumber);
}

}  // namespace
}  // namespace mnemo::serve
