#include "models/options.h"

#include "models/registry.h"

namespace mnemo::models {

const base::PolyType& BackboneOptions::attention_types() { return Mechanisms::all().attention_types; }
const base::PolyType& ModelOptions::memory_types() { return Mechanisms::all().memory_types; }

const base::PolyType& ModelOptions::head_types() { return Mechanisms::all().head_types; }

ModelOptions::ModelOptions() { head = base::Node::table({{"type", "language_model"}}); }

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

std::string word(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

int64_t number(const base::Node& table, std::string_view key) {
  const base::Node* value = table.find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

/// Rows that a memory on the sequence seam puts beside the tokens.
int64_t rows_of(const base::Node& memory) {
  const int64_t tokens = number(memory, "num_mem_tokens");
  if (word(memory, "layout") == "encoder") return tokens + 3;
  return word(memory, "layout") == "read_write" ? 2 * tokens : tokens;
}

}  // namespace

void BackboneOptions::validate(const base::Where& where) const {
  backbones::EncoderOptions::validate(where);
  where.require(!causal() || token_types == 0, "token_types", "goes with type = \"encoder\"");
  where.require(!causal() || !embed_norm, "embed_norm", "goes with type = \"encoder\"");
}

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
    const bool block = word(options, "layout") == "encoder";
    if (backbone.causal()) {
      where.require(!block, "memory", "{} with layout = \"encoder\" needs backbone.type = \"encoder\"; expected layout = \"read_write\"", type);
    } else {
      where.require(!entry.layer_context, "memory", "'{}' keeps rows for causal layers; an encoder takes grc, and recurrent_tokens with "
                    "layout = \"encoder\"", type);
      where.require(!entry.sequence || block, "memory", "'{}' adds rows with the rules of causal layers; an encoder takes "
                    "recurrent_tokens with layout = \"encoder\"", type);
    }
    if (entry.sequence) {
      const int64_t rows = segment_size + rows_of(options);
      where.require(backbone.position.type != "learned" || number(options, "num_mem_tokens") == 0 || rows <= backbone.position.max_len,
                    "memory", "more memory tokens than a segment has room for: num_mem_tokens = {} and segment_size = {} make {} rows, but "
                    "backbone.position.max_len is {}", number(options, "num_mem_tokens"), segment_size, rows, backbone.position.max_len);
    }
    if (type == "grc" && backbone.causal()) {
      where.require(word(options, "variant") != "authors", "memory",
                    "grc with variant = \"authors\" in a causal model leaks the future: every query reads an update made "
                    "from the whole segment; use variant = \"paper\", whose causal form reads the cache as it was before "
                    "the segment");
    }
  }
  where.require(!same_length || sequence_memory.empty(), "memory",
                "segment_cache with same_length gives memory rows no rule ('{}'); use same_length = false", sequence_memory);
  if (type_of(head) == "classification") {
    where.require(!backbone.causal(), "head", "'classification' reads a row that has seen the whole segment; it needs backbone.type = \"encoder\"");
    where.require(kind == "model", "head", "a layer_stack has no head; expected kind = \"model\"");
    where.require(sequence_memory.empty() || word(head, "pool") != "mean", "head",
                  "pool = \"mean\" leaves out the [CLS] row of '{}'; expected \"cls\"", sequence_memory);
  }
  where.require(!embedding.dim.has_value() || *embedding.dim == backbone.dim, "embedding",
                "expected embedding.dim = backbone.dim = {}, found {}", backbone.dim, embedding.dim.value_or(0));
}

}  // namespace mnemo::models
