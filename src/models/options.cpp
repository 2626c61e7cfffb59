#include "models/options.h"

#include "models/registry.h"

namespace mnemo::models {

const base::PolyType& BackboneOptions::attention_types() { return Mechanisms::all().attention_types; }
const base::PolyType& ModelOptions::memory_types() { return Mechanisms::all().memory_types; }

BackboneOptions::BackboneOptions() { attention = base::Node::table({{"type", "relative"}}); }

std::string type_of(const base::Node& mechanism) {
  const base::Node* type = mechanism.find("type");
  return type == nullptr ? "" : type->as_string();
}

namespace {

bool flag(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

}  // namespace

void ModelOptions::validate(const base::Where& where) const {
  const Mechanisms& mechanisms = Mechanisms::all();
  std::string sequence_memory, cache, wrapper;
  bool same_length = false;
  for (const base::Node& options : memory) {
    const std::string type = type_of(options);
    const memory::Entry& entry = mechanisms.memories.find(type);
    std::string& taken = entry.sequence ? sequence_memory : entry.layer_context ? cache : wrapper;
    where.require(taken.empty(), "memory",
                  "'{}' and '{}' attach to the same place and cannot stand in one model; keep one of them", taken, type);
    taken = type;
    if (type == "segment_cache") same_length = flag(options, "same_length") || flag(options, "eval_same_length");
    if (type == "grc") {
      where.require(options.find("variant") == nullptr || options.find("variant")->as_string() != "authors", "memory",
                    "grc with variant = \"authors\" in a causal model leaks the future: every query reads an update made "
                    "from the whole segment; use variant = \"paper\", whose causal form reads the cache as it was before "
                    "the segment");
    }
  }
  where.require(!same_length || sequence_memory.empty(), "memory",
                "segment_cache with same_length gives memory rows no rule ('{}'); use same_length = false", sequence_memory);
  where.require(!embedding.dim.has_value() || *embedding.dim == backbone.dim, "embedding",
                "expected embedding.dim = backbone.dim = {}, found {}", backbone.dim, embedding.dim.value_or(0));
}

}  // namespace mnemo::models
