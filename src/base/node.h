#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace mnemo::base {

/// The origin of a value: a file with line and column, or another origin such as `--set a.b=c` (line 0).
struct Place {
  std::shared_ptr<const std::string> source;
  int32_t line = 0;    ///< from 1; 0 if the origin has no lines
  int32_t column = 0;  ///< from 1, in bytes; 0 if unknown

  /// "recipe.toml:12", or only the origin if it has no lines, or "options" if unknown.
  std::string text() const;
};

/// A configuration value and its origin. TOML and JSON files are read into Nodes, and options are written to Nodes.
/// Tables keep the order of insertion. Copies are deep.
class Node {
 public:
  enum class Kind { null, boolean, integer, real, string, array, table };
  struct Member;
  using Array = std::vector<Node>;
  using Table = std::vector<Member>;

  Node();
  Node(bool value);
  template <std::integral T>
  requires(!std::same_as<T, bool>) Node(T value) : Node(Integer{static_cast<int64_t>(value)}) {}
  Node(double value);
  Node(std::string value);
  Node(std::string_view value);
  Node(const char* value);
  Node(const Node& other);
  Node(Node&& other) noexcept;
  Node& operator=(const Node& other);
  Node& operator=(Node&& other) noexcept;
  ~Node();

  static Node array();
  static Node array(Array items);
  static Node table();
  /// Node::table({{"type", "softmax"}, {"heads", 4}})
  static Node table(std::initializer_list<Member> members);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::null; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_int() const { return kind() == Kind::integer; }
  bool is_real() const { return kind() == Kind::real; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_table() const { return kind() == Kind::table; }

  /// The value as one type. Throws InputError that names origin, path, expected type and found value.
  bool as_bool() const;
  int64_t as_int() const;
  double as_double() const;  ///< integers are accepted
  const std::string& as_string() const;
  const Array& items() const;
  Array& items();
  const Table& members() const;
  Table& members();

  /// Elements of an array or members of a table; 0 for everything else.
  size_t size() const;

  /// The member `key`; null if this is not a table or has no such member.
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// The member `key`. Throws InputError that names this table if it is missing.
  const Node& at(std::string_view key) const;

  /// Sets a member, replacing one with the same name in place; a null node becomes a table first.
  Node& set(std::string_view key, Node value);
  /// Removes a member; returns whether it existed.
  bool erase(std::string_view key);
  /// Appends to an array; a null node becomes an array first.
  Node& push_back(Node value);

  const Place& place() const { return place_; }
  Node& set_place(Place place);
  /// Sets the origin of this node and everything inside it.
  Node& set_place_deep(const Place& place);

  /// The full key of this node in its file, such as "memory[0]". Known for nodes taken from a larger file by
  /// read_options, empty for a whole file; used as a prefix in errors of read_options.
  const std::string& path() const;
  Node& set_path(std::string path);

  /// "recipe.toml:12: 'memory[0]'": the start of error messages.
  std::string where() const;
  /// A description for messages: `string "a"`, `integer 3`, `table`.
  std::string found() const;

  /// Compares kinds and values, ignoring the order of tables, origins and paths.
  friend bool operator==(const Node& a, const Node& b);

 private:
  struct Integer {
    int64_t value;
  };
  explicit Node(Integer integer);

  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Table> value_;
  Place place_;
  std::shared_ptr<const std::string> path_;
};

struct Node::Member {
  std::string key;
  Node value;
  friend bool operator==(const Member& a, const Member& b) { return a.key == b.key && a.value == b.value; }
};

/// The value of a table's `type` key, which determines the options for its other keys; empty if there is none.
const std::string& type_of(const Node& table);

/// `text` in quotes, made safe for messages: see printable().
std::string in_quotes(std::string_view text, char quote = '"');

/// Limits on configuration files, so that a malicious one takes no more memory than its size plus a megabyte.
struct ReadLimits {
  size_t max_bytes = size_t{1} << 20;
  int max_depth = 64;
  int64_t max_values = 8192;
};

/// Parses TOML 1.0; `file` is used in error messages. Dates and times are errors.
/// Throws InputError that names file and line.
Node parse_toml(std::string_view text, const std::string& file, const ReadLimits& limits = {});

/// Reads JSON text (RFC 8259); duplicate keys and integers beyond 64 bits are errors.
/// first_line: the number of the text's first line in the file.
/// Throws InputError that names file and line.
Node parse_json(std::string_view text, const std::string& file, const ReadLimits& limits = {}, int64_t first_line = 1);

/// Reads a .toml or .json file, by its extension. The file must hold a table.
Node read_config_file(const std::filesystem::path& path, const ReadLimits& limits = {});

/// JSON text with `indent` spaces per level, or on one line if negative. Throws InputError for numbers or strings that
/// JSON cannot represent (infinity, invalid UTF-8).
std::string to_json(const Node& node, int indent = 2);

/// TOML text of a table: plain values first, then tables. Null, which TOML lacks, is written as "unset".
std::string to_toml(const Node& table);

/// Applies `--set`: "a.b=c", "memory[0].mem_len=32" or "memory.0.mem_len=32". The value is parsed as TOML, or taken as
/// a string if that fails ("variant=paper"). Missing tables are created; the index one past the end appends. Throws
/// InputError for bad syntax, an out-of-range index, or a path through a value that is not a table or list.
void set_value(Node& root, std::string_view assignment);

}  // namespace mnemo::base
