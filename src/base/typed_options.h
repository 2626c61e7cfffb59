#pragma once

#include <any>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/node.h"

namespace mnemo::base {

class PolyType;

/// A table whose key `type` selects its options, read once: the type and the struct of its options. Copies share it.
class TypedOptions {
 public:
  TypedOptions() = default;
  /// Reads a table of one of these types. Throws InputError as PolyType::read.
  TypedOptions(const PolyType& types, const Node& table);
  /// Reads another table of the same types.
  TypedOptions& operator=(const Node& table);

  const std::string& type() const { return type_; }
  /// The options. Throws InternalError unless the type was registered with O.
  template <class O>
  const O& as() const {
    const auto* options = options_ == nullptr ? nullptr : std::any_cast<O>(options_.get());
    ensure(options != nullptr, "the options of '{}' are of another struct", type_);
    return *options;
  }
  /// The table with every key, `type` first. Reading it gives the same options.
  Node table() const;
  /// Reads the table again with another value of one option.
  void set(std::string_view key, Node value);
  /// "recipe.toml:12: 'memory[0]'": where the table was written, for messages.
  std::string where() const { return written_.where(); }
  /// "recipe.toml:14: 'memory[0].control.max_len'": where one option was written.
  std::string where(std::string_view key) const;

  friend bool operator==(const TypedOptions& a, const TypedOptions& b) { return a.table() == b.table(); }

 private:
  friend class OptionTypes;
  const PolyType* types_ = nullptr;
  std::string type_;
  std::shared_ptr<const std::any> options_;
  Node (*write_)(const std::any&) = nullptr;
  Node written_;  ///< where each key was written
};

/// Calls `make`; prefixes errors with the place of the options from which it builds.
template <class Make>
auto with_location(const TypedOptions& options, Make make) {
  try {
    return make();
  } catch (const InputError& error) {
    input_error("{}: {}", options.where(), error.what());
  }
}

}  // namespace mnemo::base
