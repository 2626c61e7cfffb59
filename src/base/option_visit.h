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
#include "base/typed_options.h"

/// Passes the declaration of an options struct to the code that reads, writes and describes it. That code is not a
/// template; it sees each field with its type erased.
namespace mnemo::base::detail {

/// A field that holds a value, with its type erased.
using FieldRef = std::variant<bool*, int64_t*, double*, std::string*, Depth*, std::vector<int64_t>*,
                              std::vector<double>*, std::vector<std::string>*, std::optional<bool>*,
                              std::optional<int64_t>*, std::optional<double>*, std::optional<std::string>*,
                              std::optional<Depth>*, std::optional<std::vector<int64_t>>*,
                              std::optional<std::vector<double>>*, std::optional<std::vector<std::string>>*, Node*,
                              std::vector<Node>*, TypedOptions*, std::vector<TypedOptions>*>;

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
  /// Replaces the content by `count` default-constructed structs.
  virtual void reset(size_t count) = 0;
  virtual void visit(size_t index, FieldVisitor& visitor) = 0;
  virtual void validate(size_t index, const Where& where) const = 0;
  /// Visits a default-constructed struct outside the list.
  virtual void visit_sample(FieldVisitor& visitor) const = 0;
};

/// The interface for reading, writing and describing each field.
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
concept OptionStruct = std::is_class_v<T> && requires(T& options, IgnoreFields ignore) {
  options.visit(ignore);
};

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

/// Between the value of an enum and its name: the rule one_of() lists the names in the order of the enumerators.
std::string name_of(const FieldInfo& info, size_t number);
size_t number_of(const FieldInfo& info, std::string_view name);

/// The `v` passed to the `visit` of an options struct.
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
  /// An enum is read and written as the name that one_of() lists in its place.
  template <class E>
  requires std::is_enum_v<E>
  void dispatch(const FieldInfo& info, E& field) {
    std::string name = name_of(info, static_cast<size_t>(field));
    visitor_.value(info, FieldRef(&name));
    field = static_cast<E>(number_of(info, name));
  }
  template <class E>
  requires std::is_enum_v<E>
  void dispatch(const FieldInfo& info, std::optional<E>& field) {
    std::optional<std::string> name;
    if (field) name = name_of(info, static_cast<size_t>(*field));
    visitor_.value(info, FieldRef(&name));
    field.reset();
    if (name) field = static_cast<E>(number_of(info, *name));
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

}  // namespace mnemo::base::detail
