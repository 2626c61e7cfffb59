#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/file_io.h"
#include "weights/safetensors.h"
#include "weights/safetensors_format.h"
#include "weights/safetensors_header.h"

namespace mnemo::weights {
namespace {

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void check_text(std::string_view file, std::string_view what, std::string_view text) {
  if (const auto bad = base::first_invalid_utf8(text)) {
    broken_rule(file, 4, "{} '{}' is ill-formed at its byte {}", what, base::printable(text), *bad);
  }
}

// The reader's caps, so that a file is rejected when it is written and not when it is needed.
void check_input(std::string_view file, const NamedTensors& tensors, const Metadata& metadata) {
  const SafetensorsLimits limits;
  if (tensors.size() > limits.max_tensors)
    over_cap(file, "tensor count", "{} tensors, expected at most {}", tensors.size(), limits.max_tensors);
  if (metadata.size() > limits.max_metadata_entries) {
    over_cap(file, "metadata count", "{} metadata entries, expected at most {}", metadata.size(),
             limits.max_metadata_entries);
  }
  for (const auto& [key, text] : metadata) {
    check_text(file, "the metadata key", key);
    check_text(file, "the metadata text", text);
    if (key.size() > limits.max_name_bytes)
      over_cap(file, "length", "the metadata key '{}' has {} bytes, expected at most {}", base::printable(key),
               key.size(), limits.max_name_bytes);
  }
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    check_text(file, "the tensor's name", name);
    if (name == kMetadataKey) broken_rule(file, 13, "a tensor cannot be called {}", kMetadataKey);
    if (!names.insert(name).second) broken_rule(file, 6, "the tensor '{}' appears twice", base::printable(name));
    if (name.size() > limits.max_name_bytes)
      over_cap(file, "length", "the name '{}' has {} bytes, expected at most {}", base::printable(name), name.size(),
               limits.max_name_bytes);
    base::require(tensor.defined(), "{}: the tensor '{}' is undefined", base::printable(file, 400),
                  base::printable(name));
    base::require(tensor.layout() == at::kStrided && !tensor.is_quantized(), "{}: the tensor '{}' is not a dense one",
                  base::printable(file, 400), base::printable(name));
    if (find_dtype(tensor.scalar_type()) == nullptr) {
      broken_rule(file, 8, "the tensor '{}' has the type {}, which the format lacks", base::printable(name),
                  c10::toString(tensor.scalar_type()));
    }
    if (static_cast<uint64_t>(tensor.dim()) > limits.max_rank)
      over_cap(file, "rank", "the tensor '{}' has {} dimensions, expected at most {}", base::printable(name),
               tensor.dim(), limits.max_rank);
  }
}

// Decreasing element size keeps every tensor aligned without padding, which rule 11 forbids.
std::vector<size_t> data_order(const NamedTensors& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].second.element_size() > tensors[b].second.element_size();
  });
  return order;
}

std::string make_header(std::string_view file, const NamedTensors& tensors, const Metadata& metadata,
                        const std::vector<size_t>& order) {
  std::vector<uint64_t> begin(tensors.size());
  uint64_t at = 0;
  for (const size_t i : order) {
    begin[i] = at;
    at += tensors[i].second.nbytes();
  }
  std::string json = "{";
  if (!metadata.empty()) {
    append_json_string(json, kMetadataKey);
    json += ":{";
    for (const auto& [key, text] : metadata) {
      append_json_string(json, key);
      json += ':';
      append_json_string(json, text);
      json += ',';
    }
    json.back() = '}';
    json += ',';
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, tensor] = tensors[i];
    append_json_string(json, name);
    json += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        find_dtype(tensor.scalar_type())->name, fmt::join(tensor.sizes(), ","), begin[i],
                        begin[i] + tensor.nbytes());
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeaderBytes) broken_rule(file, 2, "the header would have {} bytes", json.size());
  const uint64_t affordable = affordable_tensors(kLengthBytes + json.size() + at);
  if (tensors.size() > affordable)
    over_cap(file, "tensor count", "{} tensors, expected at most {} for this size", tensors.size(), affordable);
  std::string header(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) header[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return header + json;
}

void encode(std::string_view file, const NamedTensors& tensors, const Metadata& metadata, const auto& put) {
  check_input(file, tensors, metadata);
  const auto order = data_order(tensors);
  put(std::string_view(make_header(file, tensors, metadata, order)));
  for (const size_t i : order) {
    // One copy at a time, and no copy if the tensor is already dense on the CPU.
    const at::Tensor dense = tensors[i].second.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    if (dense.nbytes() > 0) put(std::string_view(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()));
  }
}

}  // namespace

void write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  base::AtomicFile file(path);
  encode(path, tensors, metadata, [&file](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

std::string encode_safetensors(const NamedTensors& tensors, const Metadata& metadata) {
  std::string out;
  encode("safetensors", tensors, metadata, [&out](std::string_view bytes) { out += bytes; });
  return out;
}

}  // namespace mnemo::weights
