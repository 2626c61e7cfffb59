#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "base/node.h"

namespace mnemo::base {

/// Named entries in the order they were added. Filled by explicit lines in one function, never by static initializers,
/// so that all entries can be found in one place.
template <class Entry>
class Registry {
 public:
  /// `kind` names an entry in messages: "memory", "attention".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  Registry& add(std::string name, Entry entry) {
    ensure(!contains(name), "{} '{}' is registered twice", kind_, name);
    names_.push_back(std::move(name));
    entries_.push_back(std::move(entry));
    return *this;
  }

  /// Throws InputError with the nearest name if there is no such entry.
  const Entry& find(std::string_view name) const {
    if (const Entry* entry = try_find(name)) return *entry;
    input_error("unknown {} {}{}", kind_, in_quotes(name, '\''), suggestion(name, names_));
  }

  /// Null if there is no such entry.
  const Entry* try_find(std::string_view name) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name) return &entries_[i];
    }
    return nullptr;
  }

  bool contains(std::string_view name) const { return try_find(name) != nullptr; }
  const std::vector<std::string>& names() const { return names_; }
  const std::string& kind() const { return kind_; }
  size_t size() const { return names_.size(); }

 private:
  std::string kind_;
  std::vector<std::string> names_;
  std::vector<Entry> entries_;
};

}  // namespace mnemo::base
