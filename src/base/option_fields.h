#pragma once

#include <string>
#include <vector>

#include "base/options.h"

/// Reading, writing and naming each kind of field of an options struct.
namespace mnemo::base::detail {

/// "integer", "list of numbers", "boolean or \"unset\"" …
std::string field_type(const FieldRef& field, const std::vector<Rule>& rules);

/// Whether "unset" was written for a field that cannot be unset: it keeps its default.
bool keeps_default(const Node& node, const FieldRef& field);
/// Reads a value and checks the rules. `path` is the key's full path. Throws InputError.
void read_field(const Node& node, const std::string& path, const FieldInfo& info, const FieldRef& field);

/// The inverse of read_field; null for an unset optional.
Node write_field(const FieldRef& field);

/// The poly rule of a field, or null.
const PolyType* poly_of(const FieldInfo& info);

/// Completes a poly table in place. Throws InputError.
void complete_poly(const PolyType& types, const std::string& path, Node& node, const std::string& default_type);
/// Reads one. Throws InputError.
TypedOptions read_poly(const PolyType& types, const std::string& path, Node node, const std::string& default_type);

/// "a.b" or "b" when the first is empty.
std::string join_path(const std::string& path, std::string_view key);

}  // namespace mnemo::base::detail
