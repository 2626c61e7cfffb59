#include "weights/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "weights/json_scanner.h"

namespace mnemo::weights {
namespace {

constexpr uint64_t kFreeTensors = 1'536;
constexpr const char* kCutOff = "; the file is cut off: copy or download it again";
constexpr uint64_t kBytesPerFurtherTensor = 8'192;

class HeaderParser {
 public:
  HeaderParser(ByteSource& source, std::string_view file, const SafetensorsLimits& limits)
      : source_(source), file_(file), limits_(limits) {}

  Header parse() {
    const uint64_t length = header_length();
    header_.data_start = kLengthBytes + length;
    check_utf8();
    JsonScanner json(source_, kLengthBytes, header_.data_start, file_);
    parse_object(json);
    check_tail(json.offset());
    check_unique_names();
    check_layout();
    return std::move(header_);
  }

 private:
  // Rules 1 to 3.
  uint64_t header_length() {
    const uint64_t size = source_.size();
    if (size < kLengthBytes) broken_rule(file_, 1, "found {} bytes{}", size, kCutOff);
    std::array<unsigned char, kLengthBytes> raw{};
    source_.read(0, raw.data(), raw.size());
    uint64_t length = 0;
    for (size_t i = 0; i < raw.size(); ++i) length |= uint64_t{raw[i]} << (8 * i);
    // If both are wrong, report the file's end: a truncated file or a foreign format is the more likely cause.
    if (length > size - kLengthBytes && length <= kMaxHeaderBytes) {
      broken_rule(file_, 3, "the header claims {} bytes, the file has {} after the length{}", length,
                  size - kLengthBytes, kCutOff);
    }
    if (length > kMaxHeaderBytes) broken_rule(file_, 2, "the header claims {} bytes", length);
    return length;
  }

  // Rule 4, in chunks.
  void check_utf8() {
    base::Utf8Checker checker;
    for (uint64_t at = kLengthBytes; at < header_.data_start;) {
      const std::string_view piece = source_.window(at).substr(
          0, static_cast<size_t>(std::min<uint64_t>(header_.data_start - at, size_t(-1))));
      if (const auto bad = checker.feed(piece)) broken_rule(file_, 4, "ill-formed at byte {} of the header", *bad);
      at += piece.size();
    }
    if (const auto bad = checker.finish()) broken_rule(file_, 4, "ill-formed at byte {} of the header", *bad);
  }

  // Rule 6 and the caps; also rule 5 for the first byte, which may not even be a space.
  void parse_object(JsonScanner& json) {
    if (header_.data_start == kLengthBytes) broken_rule(file_, 5, "the header is empty");
    const std::string_view start = source_.window(kLengthBytes);
    if (start.front() != '{') broken_rule(file_, 5, "it starts with '{}'", base::printable(start.substr(0, 1)));
    json.expect('{', 5, "'{'");
    if (json.accept('}')) return;
    bool metadata_seen = false;
    do {
      std::string name = json.string(limits_.max_name_bytes, 6, "a tensor's name");
      json.expect(':', 6, "':'");
      if (name == kMetadataKey) {
        if (metadata_seen) broken_rule(file_, 6, "the key __metadata__ appears twice");
        metadata_seen = true;
        parse_metadata(json);
      } else {
        check_count();
        header_.entries.push_back(parse_entry(json, std::move(name)));
      }
    } while (json.accept(','));
    json.expect('}', 6, "',' or '}'");
  }

  void check_count() const {
    const uint64_t next = header_.entries.size() + 1;
    if (next > limits_.max_tensors) over_cap(file_, "tensor count", "more than {} tensors", limits_.max_tensors);
    const uint64_t affordable = affordable_tensors(source_.size());
    if (next > affordable) {
      over_cap(file_, "tensor count", "more than {} tensors in a file of {} bytes; beyond {} each needs {} bytes",
               affordable, source_.size(), kFreeTensors, kBytesPerFurtherTensor);
    }
  }

  // Rule 13.
  void parse_metadata(JsonScanner& json) {
    json.expect('{', 13, "'{' after __metadata__");
    if (json.accept('}')) return;
    do {
      std::string key = json.string(limits_.max_name_bytes, 13, "a metadata key");
      json.expect(':', 6, "':'");
      std::string value = json.string(std::numeric_limits<uint64_t>::max(), 13, "a metadata text");
      if (header_.metadata.size() >= limits_.max_metadata_entries) {
        over_cap(file_, "metadata count", "more than {} metadata entries", limits_.max_metadata_entries);
      }
      if (header_.metadata.contains(key))
        broken_rule(file_, 6, "the metadata key '{}' appears twice", base::printable(key));
      header_.metadata.emplace(std::move(key), std::move(value));
    } while (json.accept(','));
    json.expect('}', 6, "',' or '}'");
  }

  // Rules 7 to 10.
  HeaderEntry parse_entry(JsonScanner& json, std::string name) {
    HeaderEntry entry;
    entry.name = std::move(name);
    json.expect('{', 7, "'{' that opens a tensor's entry");
    std::string dtype;
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    const auto once = [&](bool& seen, std::string_view key) {
      if (seen) broken_rule(file_, 6, "tensor '{}' has {} twice", base::printable(entry.name), key);
      seen = true;
    };
    if (!json.accept('}')) {
      do {
        const std::string key = json.string(limits_.max_name_bytes, 7, "dtype, shape or data_offsets");
        json.expect(':', 6, "':'");
        if (key == "dtype") {
          once(has_dtype, key);
          dtype = json.string(64, 7, "a dtype's name");
        } else if (key == "shape") {
          once(has_shape, key);
          parse_shape(json, entry);
        } else if (key == "data_offsets") {
          once(has_offsets, key);
          parse_offsets(json, entry);
        } else {
          broken_rule(file_, 7, "tensor '{}' has the key '{}'", base::printable(entry.name), base::printable(key));
        }
      } while (json.accept(','));
      json.expect('}', 6, "',' or '}'");
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      broken_rule(file_, 7, "tensor '{}' has no {}", base::printable(entry.name),
                  !has_dtype   ? "dtype"
                  : !has_shape ? "shape"
                               : "data_offsets");
    }
    entry.dtype = find_dtype(dtype);
    if (entry.dtype == nullptr) {
      broken_rule(file_, 8, "tensor '{}' has dtype '{}'", base::printable(entry.name), base::printable(dtype));
    }
    check_size(entry);
    return entry;
  }

  void parse_shape(JsonScanner& json, HeaderEntry& entry) {
    json.expect('[', 7, "'[' that opens a shape");
    if (json.accept(']')) return;
    do {
      deny_bracket(json);
      const uint64_t size = json.integer("a dimension");
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        broken_rule(file_, 9, "tensor '{}' has a dimension of {}", base::printable(entry.name), size);
      }
      if (entry.shape.size() >= limits_.max_rank) {
        over_cap(file_, "rank", "tensor '{}' has more than {} dimensions", base::printable(entry.name),
                 limits_.max_rank);
      }
      entry.shape.push_back(static_cast<int64_t>(size));
    } while (json.accept(','));
    json.expect(']', 6, "',' or ']'");
  }

  void parse_offsets(JsonScanner& json, HeaderEntry& entry) {
    json.expect('[', 7, "'[' that opens data_offsets");
    deny_bracket(json);
    entry.begin = json.integer("the begin of data_offsets");
    json.expect(',', 7, "',' between two data_offsets");
    deny_bracket(json);
    entry.end = json.integer("the end of data_offsets");
    json.expect(']', 7, "']' after two data_offsets");
  }

  // No fourth level of nesting.
  void deny_bracket(JsonScanner& json) {
    const char next = json.peek();
    if (next == '[' || next == '{') json.unexpected(6, "no deeper nesting");
  }

  // Rules 9 and 10.
  void check_size(const HeaderEntry& entry) const {
    const auto bytes = tensor_bytes(entry.shape, entry.dtype->bits);
    if (!bytes) {
      broken_rule(file_, 9, "tensor '{}' of {} has shape [{}]", base::printable(entry.name), entry.dtype->name,
                  fmt::join(entry.shape, ", "));
    }
    if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
      broken_rule(file_, 10, "tensor '{}' of {} and shape [{}] needs {} bytes, data_offsets are [{}, {}]",
                  base::printable(entry.name), entry.dtype->name, fmt::join(entry.shape, ", "), *bytes, entry.begin,
                  entry.end);
    }
    if (!entry.dtype->type) {
      throw base::InputError(fmt::format("{}: tensor '{}' has dtype {}, which LibTorch does not support",
                                         base::printable(file_, 400), base::printable(entry.name), entry.dtype->name));
    }
  }

  // Rule 5: spaces only, no other whitespace.
  void check_tail(uint64_t offset) {
    for (uint64_t at = kLengthBytes + offset; at < header_.data_start;) {
      const std::string_view piece = source_.window(at).substr(
          0, static_cast<size_t>(std::min<uint64_t>(header_.data_start - at, size_t(-1))));
      const size_t other = piece.find_first_not_of(' ');
      if (other != std::string_view::npos) {
        broken_rule(file_, 5, "'{}' at byte {} of the header, after its end", base::printable(piece.substr(other, 1)),
                    at + other - kLengthBytes);
      }
      at += piece.size();
    }
  }

  std::vector<uint32_t> sorted_entries(auto less) const {
    std::vector<uint32_t> order(header_.entries.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return less(header_.entries[a], header_.entries[b]); });
    return order;
  }

  // Rule 6, for tensor names.
  void check_unique_names() const {
    const auto order = sorted_entries([](const HeaderEntry& a, const HeaderEntry& b) { return a.name < b.name; });
    for (size_t i = 1; i < order.size(); ++i) {
      const std::string& name = header_.entries[order[i]].name;
      if (header_.entries[order[i - 1]].name == name)
        broken_rule(file_, 6, "the tensor '{}' appears twice", base::printable(name));
    }
  }

  // Rules 11 and 12.
  void check_layout() const {
    const auto order = sorted_entries([](const HeaderEntry& a, const HeaderEntry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    uint64_t at = 0;
    for (const uint32_t i : order) {
      const HeaderEntry& entry = header_.entries[i];
      if (entry.begin != at) {
        broken_rule(file_, 11, "tensor '{}' begins at byte {} of the data, expected {}", base::printable(entry.name),
                    entry.begin, at);
      }
      at = entry.end;
    }
    const uint64_t available = source_.size() - header_.data_start;
    if (at != available)
      broken_rule(file_, 12, "the tensors take {} bytes, the file has {} after the header{}", at, available,
                  at > available ? kCutOff : "");
  }

  ByteSource& source_;
  std::string_view file_;
  SafetensorsLimits limits_;
  Header header_;
};

}  // namespace

uint64_t affordable_tensors(uint64_t file_bytes) { return kFreeTensors + file_bytes / kBytesPerFurtherTensor; }

std::optional<uint64_t> tensor_bytes(c10::ArrayRef<int64_t> shape, uint32_t bits) {
  int64_t product = bits;
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product)) return std::nullopt;
  }
  if (empty) return 0;
  if (product % 8 != 0) return std::nullopt;
  return static_cast<uint64_t>(product / 8);
}

Header parse_header(ByteSource& source, std::string_view file, const SafetensorsLimits& limits) {
  return HeaderParser(source, file, limits).parse();
}

}  // namespace mnemo::weights
