#include "serve/sessions.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/printable.h"
#include "serve/completion.h"
#include "serve/session_folder.h"

namespace mnemo::serve {
namespace {

constexpr const char* kFormat = "mnemo-served-session/1";

ApiError busy() { return ApiError(409, "the session is busy with another request", "session", "session_busy"); }

int64_t bytes_of(const infer::TextSession& text) { return Sessions::kTextObjects + text.session().num_bytes(); }

}  // namespace

ApiError no_session(const std::string& id) {
  return ApiError(404, fmt::format("there is no session '{}'", base::printable(id, 40)), "session",
                  "session_not_found");
}

std::unique_ptr<SessionStore> open_store(const SessionOptions& options) {
  if (options.store) return open_redis(*options.store);
  return options.folder ? std::make_unique<SessionFolder>(*options.folder) : nullptr;
}

Sessions::Sessions(const SessionOptions& options, infer::TextSession like, std::unique_ptr<SessionStore> store)
    : options_(options), like_(std::move(like)), store_(std::move(store)) {
  if (options.store) options_.durable = true;
  if (!store_) return;
  for (const std::string& id : store_->ids()) {
    try {
      const auto stored = store_->get(id);
      base::require(stored.has_value(), "its file is of another form, or its time has passed");
      Entry entry = read_facts(stored->bytes);
      entry.stored = stored->version;
      entry.used = stored->used;  // the time in the bytes is that of their change
      entries_[id] = std::move(entry);
    } catch (const std::runtime_error& error) {
      base::log_warning("serve: the session {} is left alone: {}", id, error.what());
    }
  }
}

Sessions::Entry& Sessions::find(const std::string& id, int64_t now) {
  if (!is_session_id(id)) throw no_session(id);
  auto found = entries_.find(id);
  const bool known = found != entries_.end();
  if (known && found->second.busy) return found->second;
  if (known && found->second.stored == 0) {  // in memory alone
    if (now - found->second.used > found->second.ttl) {
      forget(id);
      throw no_session(id);
    }
  } else {
    const int64_t stored = store_ ? store_->touch(id) : 0;
    if (stored == 0) {
      if (known) forget(id);
      throw no_session(id);
    }
    if (!known) found = entries_.try_emplace(id).first;
    Entry& entry = found->second;
    if (entry.stored != stored) {
      if (entry.changed >= 0) base::log_warning("serve: the session {} was changed by another server", id);
      drop_text(id, entry);
    }
    entry.used = now;
    if (!entry.text) load(id, entry);
  }
  found->second.used = now;
  note_use(id, found->second);
  return found->second;
}

void Sessions::forget(const std::string& id) {
  const auto found = entries_.find(id);
  bytes_ -= found->second.bytes;
  loaded_.erase(found->second.use);
  entries_.erase(found);
}

void Sessions::drop_text(const std::string& id, Entry& entry) {
  entry.text.reset();
  entry.undo.reset();
  entry.marks.clear();
  entry.results.clear();
  entry.changed = -1;
  count_bytes(id, entry);
}

void Sessions::note_use(const std::string& id, Entry& entry) {
  loaded_.erase(entry.use);
  entry.use = entry.text ? ++uses_ : 0;
  if (entry.text) loaded_.emplace(entry.use, id);
}

void Sessions::count_bytes(const std::string& id, Entry& entry) {
  bytes_ -= entry.bytes;
  entry.bytes = (entry.text ? bytes_of(*entry.text) : 0) + (entry.undo ? bytes_of(*entry.undo) : 0);
  for (const auto& [name, text] : entry.marks) entry.bytes += bytes_of(text);
  for (const auto& [key, result] : entry.results) entry.bytes += std::ssize(key) + std::ssize(result);
  bytes_ += entry.bytes;
  note_use(id, entry);
}

void Sessions::changed(const std::string& id, Entry& entry, const std::function<void()>& undo, int64_t now) {
  const int64_t position_before = entry.position, changed_before = entry.changed;
  entry.position = entry.text->session().position();
  if (entry.changed < 0) entry.changed = now;
  count_bytes(id, entry);
  try {
    if (entry.position > kMostNumber)
      throw ApiError(400, fmt::format("expected a session of at most {} tokens, found {}", kMostNumber, entry.position),
                     "", "session_too_long");
    make_room(id);
    if (options_.durable || store_failed_ || entry.store_failed) {
      if (!store(id, entry))
        throw ApiError(409, "another server has changed the session; ask again", "session", "session_changed");
    } else if (entry.stored > 0) {
      store_->touch(id);  // a file is as old as its last use
    }
  } catch (...) {
    undo();
    entry.position = position_before;
    entry.changed = changed_before;
    count_bytes(id, entry);
    throw;
  }
}

void Sessions::make_room(const std::string& kept) {
  while (bytes_ > options_.memory) {
    const auto oldest = std::ranges::find_if(
        loaded_, [&](const auto& use) { return use.second != kept && !entries_.at(use.second).busy; });
    if (!store_ || oldest == loaded_.end())
      throw ApiError(429, fmt::format("sessions take {} bytes, of {} at most; delete some", bytes_, options_.memory),
                     "", "sessions_full");
    const std::string id = oldest->second;
    Entry& entry = entries_.at(id);
    if (entry.changed >= 0 && !store(id, entry))
      base::log_warning("serve: the session {} was changed by another server", id);
    drop_text(id, entry);
  }
}

bool Sessions::store(const std::string& id, Entry& entry) {
  if (!store_) return true;
  base::Node parts = base::Node::array(), results = base::Node::array();
  std::string content;
  const auto add = [&](const std::string& name, const infer::TextSession& text) {
    const std::string bytes = text.save_bytes();
    parts.push_back(base::Node::table({{"name", name}, {"bytes", static_cast<int64_t>(bytes.size())}}));
    content += bytes;
  };
  add("", *entry.text);
  if (entry.undo) add("undo", *entry.undo);
  for (const auto& [name, text] : entry.marks) add(name, text);
  for (const auto& [key, result] : entry.results)
    results.push_back(base::Node::table({{"key", base::json_text(key)}, {"result", result}}));
  const base::Node head = base::Node::table({{"format", kFormat},
                                             {"version", entry.version},
                                             {"position", entry.position},
                                             {"ttl", entry.ttl},
                                             {"used", entry.used},
                                             {"parts", parts},
                                             {"results", results}});
  const std::string bytes = base::to_json(head, -1) + "\n" + content;
  store_failed_ = entry.store_failed = true;  // if put() throws
  const bool put = store_->put(id, bytes, entry.stored, entry.ttl);
  store_failed_ = entry.store_failed = false;
  if (!put) return false;
  entry.seal = seal_(bytes);
  ++entry.stored;
  entry.changed = -1;
  return true;
}

std::pair<base::Node, std::string_view> Sessions::split(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  base::require(end != std::string_view::npos, "expected a line of JSON, found none");
  base::Node head = base::parse_json(bytes.substr(0, end), "session", {.max_bytes = 64 << 20});
  base::require(head.at("format").as_string() == kFormat, "expected the format '{}'", kFormat);
  return {std::move(head), bytes.substr(end + 1)};
}

Sessions::Entry Sessions::facts_of(const base::Node& head) {
  const auto number = [&head](const char* key) {
    const int64_t found = head.at(key).as_int();
    base::require(found >= 0 && found <= kMostNumber, "'{}': expected 0 to {}, found {}", key, kMostNumber, found);
    return found;
  };
  Entry entry;
  entry.version = number("version");
  entry.position = number("position");
  entry.ttl = number("ttl");
  entry.used = number("used");
  return entry;
}

template <class Bytes>
Sessions::Entry Sessions::read(std::string_view bytes) const {
  auto [head, rest] = split(bytes);
  Entry entry = facts_of(head);
  for (const base::Node& part : head.at("parts").items()) {
    const auto size = static_cast<uint64_t>(part.at("bytes").as_int());
    base::require(size <= rest.size(), "expected {} more bytes, found {}", size, rest.size());
    const std::string_view content = rest.substr(0, size);
    infer::TextSession text = like_.load_bytes(Bytes{content});
    const std::string& name = part.at("name").as_string();
    if (name.empty()) {
      entry.text = std::move(text);
    } else if (name == "undo") {
      entry.undo = std::move(text);
    } else {
      entry.marks.emplace_back(name, std::move(text));
    }
    rest.remove_prefix(size);
  }
  base::require(entry.text.has_value() && entry.text->session().position() == entry.position,
                "expected a session at position {}", entry.position);
  for (const base::Node& result : head.at("results").items())
    entry.results.emplace_back(result.at("key").as_string(), result.at("result").as_string());
  return entry;
}

void Sessions::load(const std::string& id, Entry& entry) {
  const int64_t used = entry.used;
  try {
    const auto stored = store_->get(id);
    base::require(stored.has_value(), "it is gone");
    const uint64_t seal = seal_(stored->bytes);
    Entry loaded = entry.seal == seal ? read<infer::OwnBytes>(stored->bytes) : read<std::string_view>(stored->bytes);
    loaded.seal = seal;  // what has been read whole once need not be tried out again
    loaded.stored = stored->version;
    loaded.used = used;
    entry = std::move(loaded);
  } catch (const base::InputError& error) {
    forget(id);
    throw ApiError(404, fmt::format("the session {} cannot be read: {}", id, error.what()), "session",
                   "session_not_found");
  } catch (...) {
    if (entry.stored == 0) forget(id);  // known since this request alone
    throw;
  }
  count_bytes(id, entry);
  try {
    make_room(id);
  } catch (...) {
    drop_text(id, entry);
    throw;
  }
}

std::string Sessions::create(infer::TextSession text, std::optional<int64_t> ttl, int64_t now) {
  const std::string id = random_hex(16);
  Entry& entry = entries_[id];
  entry.text = std::move(text);
  entry.ttl = ttl.value_or(options_.ttl);
  entry.used = now;
  try {
    changed(
        id, entry, [] {}, now);
  } catch (...) {
    forget(id);
    throw;
  }
  return id;
}

const infer::TextSession& Sessions::begin(const std::string& id, std::optional<int64_t> if_position, int64_t now) {
  Entry& entry = find(id, now);
  if (entry.busy) throw busy();
  if (if_position && *if_position != entry.position)
    throw ApiError(412, fmt::format("the session is at position {}, not {}", entry.position, *if_position),
                   "if_position", "other_position");
  entry.busy = true;
  return *entry.text;
}

void Sessions::commit(const std::string& id, infer::TextSession text, const std::string& key, const std::string& result,
                      int64_t now) {
  Entry& entry = entries_.at(id);
  entry.used = now;
  entry.busy = false;
  std::optional<infer::TextSession> last = std::exchange(entry.undo, std::exchange(entry.text, std::move(text)));
  ++entry.version;
  const auto results = key.empty() ? decltype(entry.results)() : entry.results;
  if (!key.empty()) {
    // The key of an answer that is too large is kept without it: so nothing is read twice.
    entry.results.emplace_back(key, result.size() > kMostResult ? "" : result);
    if (entry.results.size() > kResults) entry.results.erase(entry.results.begin());
  }
  const auto undo = [&] {
    entry.text = std::exchange(entry.undo, std::move(last));
    --entry.version;
    if (!key.empty()) entry.results = results;
  };
  changed(id, entry, undo, now);
}

void Sessions::release(const std::string& id) {
  if (const auto found = entries_.find(id); found != entries_.end()) found->second.busy = false;
}

std::string request_key(const std::string& idempotency_key, std::string_view body) {
  if (idempotency_key.empty()) return {};
  base::Sha256 hash;
  hash.update(body);
  return idempotency_key + "\n" + hash.hex();
}

std::optional<std::string> Sessions::result(const std::string& id, const std::string& key, int64_t now) {
  const auto name_of = [](std::string_view one) { return one.substr(0, one.find('\n')); };
  for (const auto& [known, result] : find(id, now).results) {
    if (name_of(known) != name_of(key)) continue;
    if (known != key && known.find('\n') != std::string::npos)  // earlier versions kept no digest
      throw ApiError(422, "this Idempotency-Key was that of another request; expected a key of its own for each", "",
                     "idempotency_key_reused");
    if (result.empty())
      throw ApiError(422,
                     fmt::format("the request with this Idempotency-Key was done, and its answer of more than {} "
                                 "bytes is not kept; the session continues after it",
                                 kMostResult),
                     "", "answer_not_kept");
    return result;
  }
  return std::nullopt;
}

void Sessions::mark(const std::string& id, const std::string& name, int64_t now) {
  if (name.empty() || name.size() > 64 || name == "undo")
    throw ApiError(400, "'name': expected 1 to 64 bytes, and not \"undo\"", "name");
  begin(id, {}, now);
  Entry& entry = entries_.at(id);
  entry.busy = false;
  const auto marks = entry.marks;
  std::erase_if(entry.marks, [&](const auto& mark) { return mark.first == name; });
  if (entry.marks.size() >= kMarks) throw ApiError(400, fmt::format("a session has at most {} marks", kMarks), "name");
  entry.marks.emplace_back(name, *entry.text);
  changed(
      id, entry, [&] { entry.marks = marks; }, now);
}

void Sessions::rewind(const std::string& id, const std::string& name, int64_t now) {
  begin(id, {}, now);
  Entry& entry = entries_.at(id);
  entry.busy = false;
  const auto found = std::ranges::find(entry.marks, name, [](const auto& mark) { return mark.first; });
  const bool undo = name == "undo" && entry.undo;
  if (!undo && found == entry.marks.end())
    throw ApiError(404, fmt::format("the session has no mark '{}'", base::printable(name, 64)), "name",
                   "mark_not_found");
  infer::TextSession text = undo ? *entry.undo : found->second;
  commit(id, std::move(text), "", "", now);
}

void Sessions::remove(const std::string& id) {
  if (!is_session_id(id)) throw no_session(id);
  const auto found = entries_.find(id);
  if (found != entries_.end() && found->second.busy) throw busy();
  const bool stored = store_ && store_->touch(id) > 0;
  if (stored) store_->remove(id);
  if (found != entries_.end()) return forget(id);
  if (!stored) throw no_session(id);
}

base::Node Sessions::outline(const std::string& id, const Entry& entry) {
  return base::Node::table({{"id", id},
                            {"object", "session"},
                            {"position", entry.position},
                            {"bytes", entry.bytes},
                            {"version", entry.version},
                            {"expires_at", entry.used + entry.ttl}});
}

base::Node Sessions::facts(const std::string& id, int64_t now) {
  const Entry& entry = find(id, now);
  base::Node marks = base::Node::array();
  for (const auto& [name, text] : entry.marks) marks.push_back(base::json_text(name));
  base::Node facts = outline(id, entry);
  facts.set("marks", marks);
  facts.set("can_undo", entry.undo.has_value());
  return facts;
}

base::Node Sessions::list(int64_t now) {
  sweep(now);
  base::Node all = base::Node::array();
  for (const auto& [id, entry] : entries_) all.push_back(outline(id, entry));
  return base::Node::table({{"object", "list"}, {"data", all}});
}

void Sessions::sweep(int64_t now) {
  std::vector<std::string> ended;
  for (auto& [id, entry] : entries_) {
    try {
      if (entry.busy) {  // a long answer
        if (entry.stored > 0 && now - entry.used > entry.ttl / 2) store_->touch(id);
      } else if (now - entry.used > entry.ttl) {
        ended.push_back(id);
      } else if (store_ && entry.changed >= 0 && now - entry.changed >= options_.save_every && !store(id, entry)) {
        base::log_warning("serve: the session {} was changed by another server", id);
        drop_text(id, entry);
      }
    } catch (const std::exception& error) {
      base::log_warning("serve: {}", error.what());
      if (entry.changed >= 0) entry.changed = now;  // tries again later
    }
  }
  for (const std::string& id : ended) forget(id);  // others may still use it
  try {
    if (store_) store_->sweep();
  } catch (const ApiError&) {  // the store has logged why; the next call tries again
  }
}

int64_t Sessions::save_all() {
  int64_t failed = 0;
  for (auto& [id, entry] : entries_) {
    try {
      if (entry.text && entry.changed >= 0 && !store(id, entry))
        base::log_warning("serve: the session {} was changed by another server", id);
    } catch (const std::exception& error) {
      ++failed;
      base::log_warning("serve: the session {} is lost: {}", id, error.what());
    }
  }
  return failed;
}

std::string Sessions::safety() const {
  if (!store_) return "memory";
  return options_.durable ? "durable" : fmt::format("within {} s", options_.save_every);
}

}  // namespace mnemo::serve
