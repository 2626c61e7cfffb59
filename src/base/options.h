#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/node.h"
#include "base/option_rules.h"

/// Options are structs that declare their keys once, in a member template:
///
///     struct SegmentCacheOptions {
///       int64_t mem_len = 64;
///       std::string variant = "paper";
///       template <class V> void visit(V&& v) {
///         v("mem_len", mem_len, "rows kept from earlier segments", base::range(0, 1 << 20));
///         v("variant", variant, "which reading", base::one_of("paper", "authors"));
///       }
///       void validate(const base::Where& where) const;  // optional: what concerns several keys
///     };
///
/// Reading, writing, checking and the help text all follow from that declaration. A field is a bool, int64_t, double,
/// std::string, Depth, a vector of int64_t, double or string, an optional of any of these, another such struct, a
/// vector or optional of such structs, or a Node or vector<Node> with base::poly.
namespace mnemo::base {

/// A number of steps from 0, or all of them; written 0, 1, 2 … or "full".
struct Depth {
  int64_t value = 0;  ///< ignored when `full`
  bool full = false;

  static Depth all() { return {0, true}; }
  friend bool operator==(const Depth& a, const Depth& b) { return a.full == b.full && (a.full || a.value == b.value); }
};

/// Where a table of options was written; handed to `validate` to name a key in an error.
class Where {
 public:
  Where() = default;
  Where(const Node* table, std::string path) : table_(table), path_(std::move(path)) {}

  /// Throws InputError: "recipe.toml:12: 'memory[0].mem_len': <message>".
  template <class... Args>
  [[noreturn]] void error(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    fail(key, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Throws error(key, ...) unless `condition` holds.
  template <class... Args>
  void require(bool condition, std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    if (!condition) fail(key, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Whether the key was written out rather than left to its default.
  bool given(std::string_view key) const;

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

  const Node* table_ = nullptr;
  std::string path_;
};

namespace detail {

/// A field that holds a value, with its type erased.
using FieldRef = std::variant<bool*, int64_t*, double*, std::string*, Depth*, std::vector<int64_t>*, std::vector<double>*,
                              std::vector<std::string>*, std::optional<bool>*, std::optional<int64_t>*,
                              std::optional<double>*, std::optional<std::string>*, std::optional<Depth>*,
                              std::optional<std::vector<int64_t>>*, std::optional<std::vector<double>>*,
                              std::optional<std::vector<std::string>>*, Node*, std::vector<Node>*>;

struct FieldInfo {
  std::string_view name;
  std::string_view meaning;
  std::vector<Rule> rules;
};

class FieldVisitor;

/// An options struct with its type erased.
class Group {
 public:
  virtual ~Group() = default;
  virtual void visit(FieldVisitor& visitor) = 0;
  virtual void validate(const Where& where) const = 0;
};

/// A vector or optional of options structs with its type erased.
class GroupList {
 public:
  virtual ~GroupList() = default;
  virtual bool is_optional() const = 0;
  virtual size_t size() const = 0;
  /// Drops what is there and leaves `count` default-constructed structs.
  virtual void reset(size_t count) = 0;
  virtual void visit(size_t index, FieldVisitor& visitor) = 0;
  virtual void validate(size_t index, const Where& where) const = 0;
  /// Visits a default-constructed struct that is not in the list.
  virtual void visit_sample(FieldVisitor& visitor) const = 0;
};

/// What reading, writing and describing do with each field.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void value(const FieldInfo& info, FieldRef field) = 0;
  virtual void group(const FieldInfo& info, Group& group) = 0;
  virtual void list(const FieldInfo& info, GroupList& list) = 0;
};

struct IgnoreFields {
  template <class... Args>
  void operator()(Args&&...) const {}
};

template <class T>
concept OptionStruct = std::is_class_v<T> && requires(T& options, IgnoreFields ignore) { options.visit(ignore); };

template <class T>
concept FieldValue = std::is_constructible_v<FieldRef, T*>;

template <class O>
void visit_fields(O& options, FieldVisitor& visitor);

template <class O>
void validate_struct(const O& options, const Where& where) {
  if constexpr (requires { options.validate(where); }) options.validate(where);
}

template <class O>
class GroupOf final : public Group {
 public:
  explicit GroupOf(O& options) : options_(options) {}
  void visit(FieldVisitor& visitor) override { visit_fields(options_, visitor); }
  void validate(const Where& where) const override { validate_struct(options_, where); }

 private:
  O& options_;
};

template <class O>
class VectorOf final : public GroupList {
 public:
  explicit VectorOf(std::vector<O>& list) : list_(list) {}
  bool is_optional() const override { return false; }
  size_t size() const override { return list_.size(); }
  void reset(size_t count) override { list_.assign(count, O{}); }
  void visit(size_t index, FieldVisitor& visitor) override { visit_fields(list_[index], visitor); }
  void validate(size_t index, const Where& where) const override { validate_struct(list_[index], where); }
  void visit_sample(FieldVisitor& visitor) const override {
    O sample;
    visit_fields(sample, visitor);
  }

 private:
  std::vector<O>& list_;
};

template <class O>
class OptionalOf final : public GroupList {
 public:
  explicit OptionalOf(std::optional<O>& option) : option_(option) {}
  bool is_optional() const override { return true; }
  size_t size() const override { return option_.has_value() ? 1 : 0; }
  void reset(size_t count) override {
    option_.reset();
    if (count > 0) option_.emplace();
  }
  void visit(size_t, FieldVisitor& visitor) override { visit_fields(*option_, visitor); }
  void validate(size_t, const Where& where) const override { validate_struct(*option_, where); }
  void visit_sample(FieldVisitor& visitor) const override {
    O sample;
    visit_fields(sample, visitor);
  }

 private:
  std::optional<O>& option_;
};

/// The `v` an options struct's `visit` receives.
class FieldCall {
 public:
  explicit FieldCall(FieldVisitor& visitor) : visitor_(visitor) {}

  template <class T, class... Rules>
  void operator()(std::string_view name, T& field, std::string_view meaning, Rules&&... rules) {
    FieldInfo info{name, meaning, {}};
    (info.rules.push_back(std::forward<Rules>(rules)), ...);
    dispatch(info, field);
  }

 private:
  template <FieldValue T>
  void dispatch(const FieldInfo& info, T& field) {
    visitor_.value(info, FieldRef(&field));
  }
  template <OptionStruct O>
  void dispatch(const FieldInfo& info, O& options) {
    GroupOf<O> group(options);
    visitor_.group(info, group);
  }
  template <OptionStruct O>
  void dispatch(const FieldInfo& info, std::vector<O>& options) {
    VectorOf<O> list(options);
    visitor_.list(info, list);
  }
  template <OptionStruct O>
  void dispatch(const FieldInfo& info, std::optional<O>& options) {
    OptionalOf<O> list(options);
    visitor_.list(info, list);
  }

  FieldVisitor& visitor_;
};

template <class O>
void visit_fields(O& options, FieldVisitor& visitor) {
  FieldCall call(visitor);
  options.visit(call);
}

void read_group(const Node& node, Group& group, bool has_type);
Node write_group(Group& group);
std::vector<OptionDoc> describe_group(Group& group);

}  // namespace detail

/// Sets the fields that `node` (a table) names; the others keep their values. Poly fields come back completed.
/// Throws InputError, leaving `options` as they were, on an unknown key (with the nearest known one), a wrong type, a
/// value out of range, or what `validate` refuses; the message names file, line and full key.
template <detail::OptionStruct O>
void read_options(const Node& node, O& options) {
  O copy = options;
  detail::GroupOf<O> group(copy);
  detail::read_group(node, group, false);
  options = std::move(copy);
}

/// Reads a whole table into default-constructed options.
template <detail::OptionStruct O>
O read_options(const Node& node) {
  O options;
  read_options(node, options);
  return options;
}

/// Like read_options for a table that was chosen by its key `type`, which is passed over.
template <detail::OptionStruct O>
O read_typed_options(const Node& node) {
  O options;
  detail::GroupOf<O> group(options);
  detail::read_group(node, group, true);
  return options;
}

/// A table with every field; unset optionals are null. read_options of it gives the same options.
template <detail::OptionStruct O>
Node write_options(const O& options) {
  O copy = options;
  detail::GroupOf<O> group(copy);
  return detail::write_group(group);
}

/// Checks options that were built in code: rules, `validate`, and poly tables. Throws InputError.
template <detail::OptionStruct O>
void check_options(const O& options) {
  read_options<O>(write_options(options));
}

/// Every key with type, default, range and meaning.
template <detail::OptionStruct O>
std::vector<OptionDoc> describe_options() {
  O options;
  detail::GroupOf<O> group(options);
  return detail::describe_group(group);
}

/// The descriptions as an aligned table for a terminal of `width` columns (0: lines are not broken).
std::string option_table(const std::vector<OptionDoc>& docs, size_t width = 120);
/// The descriptions as Markdown, one table a group.
std::string option_markdown(const std::vector<OptionDoc>& docs);

}  // namespace mnemo::base
