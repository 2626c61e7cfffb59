#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/node.h"
#include "base/option_rules.h"
#include "base/option_visit.h"

/// Options are structs that declare their keys once, in a member template:
///
///     struct SegmentCacheOptions {
///       int64_t mem_len = 64;
///       std::string variant = "paper";
///       template <class V> void visit(V&& v) {
///         v("mem_len", mem_len, "rows kept from earlier segments", base::range(0, 1 << 20));
///         v("variant", variant, "which reading", base::one_of("paper", "authors"));
///       }
///       void validate(const base::Where& where) const;  // optional: rules over several keys
///     };
///
/// Reading, writing, checking and the help text all follow from that declaration. A field is a bool, int64_t, double,
/// std::string, Depth, an enum (base::one_of lists its names in order), a vector of int64_t, double or string, an
/// optional of any of these, another such struct, a vector or optional of such structs, or, with base::poly, a Node,
/// TypedOptions or a vector of these.
namespace mnemo::base {

namespace detail {

void read_group(const Node& node, Group& group, bool has_type);
Node write_group(Group& group);
std::vector<OptionDoc> describe_group(Group& group);

}  // namespace detail

/// Sets the fields that `node` (a table) contains; others keep their values. Poly fields are completed with defaults.
/// Throws InputError, leaving `options` as they were, for an unknown key (with the nearest known one), a wrong type, an
/// out-of-range value, or if `validate` fails; the message names file, line and full key.
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

/// Like read_options for a table selected by its key `type`, which is ignored.
template <detail::OptionStruct O>
O read_typed_options(const Node& node) {
  O options;
  detail::GroupOf<O> group(options);
  detail::read_group(node, group, true);
  return options;
}

/// A table with every field; unset optionals are null. read_options on it gives the same options.
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

/// Describes every key with type, default, range and meaning.
template <detail::OptionStruct O>
std::vector<OptionDoc> describe_options() {
  O options;
  detail::GroupOf<O> group(options);
  return detail::describe_group(group);
}

/// The descriptions as Markdown, one table per group.
std::string option_markdown(const std::vector<OptionDoc>& docs);

}  // namespace mnemo::base
