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

#include "base/node.h"
#include "infer/text_session.h"
#include "serve/api_error.h"
#include "serve/seal.h"
#include "serve/session_store.h"

namespace mnemo::serve {

struct SessionOptions {
  std::optional<std::string> folder = {};  ///< keeps sessions there, beyond memory and from one start to the next
  std::optional<std::string> store = {};   ///< or in Redis at this address; then durable
  int64_t memory = int64_t{1} << 30;  ///< bytes of sessions in memory; the least recently used leave for the folder
  int64_t ttl = 86400;                ///< seconds without use, then a session is deleted; a request may ask for less
  bool durable = false;               ///< stored before a request is answered
  int64_t save_every = 30;            ///< seconds until a change is stored otherwise
};

/// The store that the options name; null: none. Throws InputError if it cannot be opened.
std::unique_ptr<SessionStore> open_store(const SessionOptions& options);

/// 404: there is no session of that id.
ApiError no_session(const std::string& id);

/// An Idempotency-Key with a digest of its request, which tells it from another with the same key; empty for no key.
std::string request_key(const std::string& idempotency_key, std::string_view body);

/// The sessions of a server, by id. A session changes as a whole: a request takes a copy with begin() and gives back
/// the next version with commit(), or nothing with release(). One thread uses it.
///
/// With a store, memory is a cache of it: begin() takes a version that another server has stored since, and a change
/// that finds one is refused with 409 "session_changed".
class Sessions {
 public:
  static constexpr size_t kMarks = 8, kResults = 8;
  static constexpr int64_t kTextObjects = 4096;             ///< bytes that count for a text beside its state
  static constexpr size_t kMostResult = 1 << 20;            ///< bytes of an answer that is kept for its key
  static constexpr int64_t kMostNumber = int64_t{1} << 48;  ///< of a position, as it is read from a store

  /// like: a session of the model without tokens. store: null keeps sessions in memory alone.
  Sessions(const SessionOptions& options, infer::TextSession like, std::unique_ptr<SessionStore> store);

  /// A new session; its id. Throws ApiError 429 "sessions_full" without room for it.
  std::string create(infer::TextSession text, std::optional<int64_t> ttl, int64_t now);
  /// The session to continue from, which is busy from now on. Throws ApiError: 404; 409 while it is busy; 412 if its
  /// position is another.
  const infer::TextSession& begin(const std::string& id, std::optional<int64_t> if_position, int64_t now);
  /// Its next version, and what the request with this key was answered; no longer busy. On an error it is as before.
  void commit(const std::string& id, infer::TextSession text, const std::string& key, const std::string& result,
              int64_t now);
  void release(const std::string& id);
  /// The answer to an earlier request with this request_key(); nothing for a new one. Throws ApiError 422
  /// "answer_not_kept" for one that was answered with more than kMostResult, and "idempotency_key_reused" if the
  /// request with that Idempotency-Key was another.
  std::optional<std::string> result(const std::string& id, const std::string& key, int64_t now);

  void mark(const std::string& id, const std::string& name, int64_t now);
  /// To a mark, or to the version before the last ("undo").
  void rewind(const std::string& id, const std::string& name, int64_t now);
  void remove(const std::string& id);

  /// Seconds without use after which it is deleted.
  int64_t ttl(const std::string& id) const { return entries_.at(id).ttl; }
  base::Node facts(const std::string& id, int64_t now);
  base::Node list(int64_t now);
  /// Deletes what has not been used for its time, and stores what has changed since long ago.
  void sweep(int64_t now);
  /// Stores all changes, each that can be; the number of the others.
  int64_t save_all();

  int64_t count() const { return static_cast<int64_t>(entries_.size()); }
  int64_t bytes() const { return bytes_; }
  int64_t stored_bytes() const { return store_ ? store_->bytes() : 0; }
  /// When an answered change is safe: "durable", "within 30 s" or "memory".
  std::string safety() const;

 private:
  struct Entry {
    std::optional<infer::TextSession> text;  // unset: in the store alone
    std::optional<infer::TextSession> undo;
    std::vector<std::pair<std::string, infer::TextSession>> marks;
    std::vector<std::pair<std::string, std::string>> results;  // latest last
    int64_t version = 1, ttl = 0, used = 0, changed = -1;      // Unix times; changed: since when it is not stored
    int64_t position = 0, bytes = 0;
    int64_t stored = 0;            // version of the store that this is, with what changed since; 0: none
    std::optional<uint64_t> seal;  // of the bytes that this process has stored last
    int64_t use = 0;               // its place in `loaded_`; 0: it has none
    bool busy = false;
    bool store_failed = false;  // its last put() threw
  };
  /// The facts that a list shows.
  static base::Node outline(const std::string& id, const Entry& entry);
  /// With its text, of the version that is stored now.
  Entry& find(const std::string& id, int64_t now);
  /// Forgets what memory has of it.
  void forget(const std::string& id);
  void drop_text(const std::string& id, Entry& entry);
  void count_bytes(const std::string& id, Entry& entry);
  /// Makes it the last in `loaded_` if its text is in memory.
  void note_use(const std::string& id, Entry& entry);
  /// Notes a change: counts its bytes, stores it or makes room. If that fails, `undo` is called.
  void changed(const std::string& id, Entry& entry, const std::function<void()>& undo, int64_t now);
  void make_room(const std::string& kept);
  /// False if another server has stored a version since.
  bool store(const std::string& id, Entry& entry);
  void load(const std::string& id, Entry& entry);
  /// A session without its texts, from stored bytes.
  static Entry read_facts(std::string_view bytes) { return facts_of(split(bytes).first); }
  /// A session with its texts, which TextSession::load_bytes() reads from Bytes.
  template <class Bytes>
  Entry read(std::string_view bytes) const;
  /// The line of JSON, and the texts behind it.
  static std::pair<base::Node, std::string_view> split(std::string_view bytes);
  static Entry facts_of(const base::Node& head);

  SessionOptions options_;
  infer::TextSession like_;
  std::unique_ptr<SessionStore> store_;
  Seal seal_;
  std::map<std::string, Entry> entries_;
  std::map<int64_t, std::string> loaded_;  // the ids of those in memory, the least recently used first
  int64_t bytes_ = 0, uses_ = 0;
  bool store_failed_ = false;  // the last put() threw; then each change is stored before it is answered
};

}  // namespace mnemo::serve
