#include "base/toml_reader.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/printable.h"
#include "base/toml_scan.h"

namespace mnemo::base {

/// toml++ checks its invariants with asserts; hostile input that violates one must give an error, not an abort.
[[noreturn]] static void toml_assertion_failed() { throw std::runtime_error("malformed TOML"); }

}  // namespace mnemo::base

// Keep asserts in optimised builds too, where toml++ would otherwise assume that they hold. This is the only file that
// includes toml++.
#undef NDEBUG
#define TOML_ASSERT(expr) static_cast<void>((expr) ? void() : ::mnemo::base::toml_assertion_failed())
#define TOML_MAX_NESTED_VALUES 128
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_UNRELEASED_FEATURES 0
#include <toml++/toml.h>

namespace mnemo::base {
namespace {

constexpr size_t kMaxTomlMessage = 300;

/// Copies the tree of toml++ into nodes, with tables in the order of the text.
class Converter {
 public:
  Converter(const std::string& file, const ReadLimits& limits)
      : limits_(limits), source_(std::make_shared<const std::string>(file)) {}

  Node convert(const toml::node& from, Place place, int depth) {
    if (++values_ > limits_.max_values) fail(place, "more than {} values", limits_.max_values);
    const bool nests = from.is_table() || from.is_array();
    if (nests && depth > limits_.max_depth) fail(place, "nested deeper than {} levels", limits_.max_depth);
    Node node;
    if (const auto* table = from.as_table()) {
      node = convert_table(*table, depth);
    } else if (const auto* array = from.as_array()) {
      node = Node::array();
      node.items().reserve(array->size());
      for (const toml::node& item : *array) node.push_back(convert(item, place_of(item.source()), depth + 1));
    } else if (const auto* text = from.as_string()) {
      node = Node(text->get());
    } else if (const auto* integer = from.as_integer()) {
      node = Node(integer->get());
    } else if (const auto* real = from.as_floating_point()) {
      node = Node(real->get());
    } else if (const auto* boolean = from.as_boolean()) {
      node = Node(boolean->get());
    } else {
      fail(place, "dates and times are not supported; write a string in quotes");
    }
    return std::move(node.set_place(std::move(place)));
  }

  Place place_of(const toml::source_region& region) const {
    return {source_, static_cast<int32_t>(region.begin.line), static_cast<int32_t>(region.begin.column)};
  }

 private:
  template <class... Args>
  [[noreturn]] static void fail(const Place& place, fmt::format_string<Args...> format, Args&&... args) {
    input_error("{}: {}", place.text(), fmt::format(format, std::forward<Args>(args)...));
  }

  Node convert_table(const toml::table& table, int depth) {
    Node node = Node::table();
    node.members().reserve(table.size());
    for (const auto& [key, value] : table) {
      node.members().push_back({std::string(key.str()), convert(value, place_of(key.source()), depth + 1)});
    }
    std::stable_sort(node.members().begin(), node.members().end(), [](const Node::Member& a, const Node::Member& b) {
      const Place& first = a.value.place();
      const Place& second = b.value.place();
      return std::pair(first.line, first.column) < std::pair(second.line, second.column);
    });
    return node;
  }

  const ReadLimits& limits_;
  std::shared_ptr<const std::string> source_;
  int64_t values_ = 0;
};

std::string description(const toml::parse_error& error) {
  std::string text = printable(error.description(), kMaxTomlMessage);
  // After the file and line, "Error while parsing key: expected …" reads better without its first words.
  for (const std::string_view start : {"Error while parsing ", "Error "}) {
    if (text.starts_with(start)) return text.substr(start.size());
  }
  return text;
}

}  // namespace

Node parse_toml(std::string_view text, const std::string& file, const ReadLimits& limits) {
  require(text.size() <= limits.max_bytes, "{}: {} bytes, the limit is {}", file, text.size(), limits.max_bytes);
  scan_toml(text, file, limits);
  try {
    const toml::table table = toml::parse(text, std::string_view(file));
    Converter converter(file, limits);
    Place start = converter.place_of(table.source());
    start.line = start.column = 1;
    return converter.convert(table, start, 0);
  } catch (const toml::parse_error& error) {
    input_error("{}:{}: {}", file, error.source().begin.line, description(error));
  } catch (const InputError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    input_error("{}: {}", file, error.what());
  }
}

Node parse_toml_value(std::string_view text) {
  require(text.find_first_of("\r\n") == std::string_view::npos, "a value must not contain line breaks");
  require(!text.ends_with(','), "a value must not end with a comma");
  const ReadLimits limits;
  // Wrapped in a list, so that a comment or a second key after the value is an error.
  const std::string line = fmt::format("v = [{}]", text);
  require(line.size() <= limits.max_bytes, "{} bytes, the limit is {}", line.size(), limits.max_bytes);
  scan_toml(line, "value", limits);
  try {
    const toml::table table = toml::parse(line);
    const toml::array* values = table.get_as<toml::array>("v");
    require(table.size() == 1 && values != nullptr && values->size() == 1, "expected one value");
    return Converter("value", limits).convert(*values->get(0), {}, 1);
  } catch (const toml::parse_error& error) {
    throw InputError(description(error));
  } catch (const InputError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw InputError(error.what());
  }
}

}  // namespace mnemo::base
