#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/registry.h"

namespace mnemo::base {

/// Restores the places of values that were written, for later errors; values filled in get the place of their table.
void copy_places(const Node& written, Node& filled);

/// The usual PolyType: maps each type name to the options struct of its tables.
///
///     OptionTypes types("memory");
///     types.add<SegmentCacheOptions>("segment_cache", "Transformer-XL: rows of earlier segments");
class OptionTypes final : public PolyType {
 public:
  explicit OptionTypes(std::string kind) : entries_(std::move(kind)) {}

  template <detail::OptionStruct O>
  OptionTypes& add(std::string name, std::string meaning) {
    entries_.add(std::move(name),
                 Entry{std::move(meaning),
                       [](const Node& table) { return std::make_shared<const std::any>(read_typed_options<O>(table)); },
                       [](const std::any& options) { return write_options(*std::any_cast<O>(&options)); },
                       [] { return describe_options<O>(); }});
    return *this;
  }

  std::string kind() const override { return entries_.kind(); }
  std::vector<std::string> types() const override { return entries_.names(); }
  Node complete(const Node& table) const override { return read(table).table(); }
  TypedOptions read(const Node& table) const override;
  std::vector<OptionDoc> describe(const std::string& type) const override;
  std::string meaning(const std::string& type) const override;

 private:
  struct Entry {
    std::string meaning;
    std::shared_ptr<const std::any> (*read)(const Node&);
    Node (*write)(const std::any&);
    std::function<std::vector<OptionDoc>()> describe;
  };
  Registry<Entry> entries_;
};

}  // namespace mnemo::base
