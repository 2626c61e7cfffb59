#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/node.h"

namespace mnemo::base {

class TypedOptions;

/// One line of `mnemo help recipe`.
struct OptionDoc {
  std::string path;   ///< "train.steps", "memory[].mem_len"
  std::string type;   ///< "integer", "list of strings", ...
  std::string value;  ///< the default as TOML; empty for tables
  std::string range;  ///< accepted values; empty if there is no restriction
  std::string meaning;
  std::string group;  ///< the type this key belongs to (`memory[] with type = "grc"`); empty for keys that always exist
};

/// A number of steps, or all of them; written 0, 1, 2 … or "full".
struct Depth {
  int64_t value = 0;  ///< ignored when `full`
  bool full = false;

  static Depth all() { return {0, true}; }
  friend bool operator==(const Depth& a, const Depth& b) { return a.full == b.full && (a.full || a.value == b.value); }
};

/// Where a table of options was written; passed to `validate` to name keys in errors.
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
  /// Whether the key was set explicitly.
  bool given(std::string_view key) const;

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

  const Node* table_ = nullptr;
  std::string path_;
};

/// Parts of a configuration that are selected by a key `type`, each with its own options; see option_poly.h for the
/// usual implementation.
class PolyType {
 public:
  virtual ~PolyType() = default;
  /// The name of a part in messages: "memory".
  virtual std::string kind() const = 0;
  virtual std::vector<std::string> types() const = 0;
  /// Checks a table whose `type` is one of types() and returns it with every key filled in. Idempotent.
  /// Throws InputError naming the offending key; `table.path()` is the table's full key.
  virtual Node complete(const Node& table) const = 0;
  /// The same, read.
  virtual TypedOptions read(const Node& table) const = 0;
  /// The keys of one type, with paths relative to the table.
  virtual std::vector<OptionDoc> describe(const std::string& type) const = 0;
  /// One-line description of a type.
  virtual std::string meaning(const std::string& type) const = 0;
};

/// A rule for the value of a field beyond its type; for a list, it applies to each element. A field may have several
/// rules.
struct Rule {
  std::string text;                        ///< "0 to 64"; shown in help and in messages after "expected"
  std::function<bool(const Node&)> holds;  ///< on an integer, number or string; empty: always
  std::vector<std::string> names;          ///< the strings accepted by one_of, for the nearest name
  const PolyType* poly = nullptr;
};

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// lo <= value <= hi. An infinite bound is none. Depth::full and unset values pass.
Rule range(double lo, double hi);
/// lo < value < hi.
Rule open_range(double lo, double hi);
/// lo <= value < hi: probabilities that must not reach 1, for example.
Rule half_open_range(double lo, double hi);
/// value >= lo.
Rule at_least(double lo);
/// value > 0.
Rule positive();

Rule one_of_names(std::vector<std::string> names);
/// The string is one of these.
template <class... Names>
Rule one_of(Names&&... names) {
  return one_of_names({std::string(std::forward<Names>(names))...});
}

/// The string is not empty.
Rule not_empty();

/// A custom rule: `holds` is called for each integer, number or string.
Rule check(std::string text, std::function<bool(const Node&)> holds);

/// The Node or TypedOptions (or each in a list) is a table whose key `type` determines its options. `types` must
/// outlive the options. A string means a table of that type with default options; a single table without `type` has the
/// type of the field's default.
Rule poly(const PolyType& types);

}  // namespace mnemo::base
