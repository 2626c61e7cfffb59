#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/node.h"

namespace mnemo::weights {

/// A size that may be written as one number or as [height, width]: always the latter. Throws InputError for anything else.
inline base::Node size_pair(const base::Node& size) {
  base::Node pair = size;
  if (size.is_int()) {
    pair = base::Node::array({size, size});
    pair.set_place(size.place());
  }
  base::require(pair.is_array() && pair.size() == 2 && pair.items()[0].is_int() && pair.items()[1].is_int(),
                "{}: expected a number or [height, width], found {}", size.where(), size.found());
  return pair;
}

/// A size of one number, written so or as a pair of equal ones.
inline base::Node size_square(const base::Node& size) {
  const base::Node pair = size_pair(size);
  base::require(pair.items()[0] == pair.items()[1], "{}: expected equal sides, found {} x {}", size.where(), pair.items()[0].as_int(),
                pair.items()[1].as_int());
  return pair.items()[0];
}

/// The member of that name, or `otherwise` where it is missing or null.
inline base::Node member_or(const base::Node& table, std::string_view key, const base::Node& otherwise) {
  const base::Node* found = table.find(key);
  return found == nullptr || found->is_null() ? otherwise : *found;
}

template <class T>
base::Node node_list(const std::vector<T>& values) {
  return base::Node::array({values.begin(), values.end()});
}

/// Height and width of the images that a timm config.json speaks of: pretrained_cfg.input_size [C,H,W], or 224 each.
inline base::Node timm_input_size(const base::Node& config) {
  const base::Node* about = config.find("pretrained_cfg");
  const base::Node* size = about == nullptr || !about->is_table() ? nullptr : about->find("input_size");
  if (size == nullptr || size->is_null()) return base::Node::array({224, 224});
  base::require(size->is_array() && size->size() == 3, "{}: 'pretrained_cfg.input_size': expected [channels, height, width], found {}",
                config.place().text(), size->found());
  return size_pair(base::Node::array({size->items()[1], size->items()[2]}));
}

/// The name of a timm factory in config.json; empty where the config is of another library.
inline std::string timm_architecture(const base::Node& config) {
  const base::Node* name = config.find("architecture");
  return name != nullptr && name->is_string() ? name->as_string() : std::string();
}

/// What a timm config.json changes of its factory's arguments: `model_args`, with num_classes and global_pool from beside it where they
/// are missing there.
inline base::Node timm_arguments(const base::Node& config) {
  base::Node arguments = member_or(config, "model_args", base::Node::table());
  base::require(arguments.is_table(), "{}: 'model_args': expected a table, found {}", config.place().text(), arguments.found());
  for (const char* key : {"num_classes", "global_pool"}) {
    if (const base::Node* beside = config.find(key); beside != nullptr && !arguments.contains(key)) arguments.set(key, *beside);
  }
  arguments.set_path("model_args");
  return arguments;
}

}  // namespace mnemo::weights
