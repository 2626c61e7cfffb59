#include "data/images/inaturalist.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"

namespace mnemo::data {
namespace {

constexpr uint64_t kLargestList = uint64_t{4} << 30;
constexpr size_t kLongestParserMessage = 200;

/// A list in the file, and the keys to read from its entries.
struct ListSection {
  std::string_view name;
  std::array<std::string_view, 2> numbers;  ///< keys of integers; an empty second key: none
  std::string_view text;                    ///< key of a string, or empty
};
constexpr std::array<ListSection, 3> kListSections = {{{"images", {"id", ""}, "file_name"},
                                                       {"annotations", {"image_id", "category_id"}, ""},
                                                       {"categories", {"id", ""}, "name"}}};

/// The values of one entry.
struct ListEntry {
  std::array<std::optional<int64_t>, 2> numbers;
  std::optional<std::string> text;
};

/// Receives every value in turn. Nesting depth: 1 the top-level object, 2 a list in it, 3 an entry, more: inside an
/// entry.
class ListReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ListReader(const std::string& path) : path_(path) {}

  INaturalistList take();

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return value > static_cast<number_unsigned_t>(INT64_MAX) ? other("an integer beyond 64 bits")
                                                             : number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t, const string_t& digits) override { return other(base::printable(digits)); }
  bool string(string_t& value) override {
    if (!wants_text()) return other(base::in_quotes(value));
    entry_.text = std::move(value);
    return true;
  }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (open_ != 0 && !(open_ == 2 && section_ >= 0)) other("a table");
    if (open_++ == 2) entry_ = {};
    return true;
  }
  bool end_object() override {
    if (--open_ == 2 && section_ >= 0) finish_entry();
    return true;
  }
  bool start_array(size_t) override {
    if (!(open_ == 1 && section_ >= 0)) other("a list");
    ++open_;
    return true;
  }
  bool end_array() override {
    --open_;
    return true;
  }
  bool key(string_t& name) override {
    if (open_ == 1) {
      section_ = -1;
      for (size_t i = 0; i < kListSections.size(); ++i) {
        if (name == kListSections[i].name) section_ = static_cast<int>(i);
      }
      if (section_ >= 0)
        base::require(!std::exchange(there_[static_cast<size_t>(section_)], true), "{}: key '{}' appears twice", path_,
                      name);
    } else if (open_ == 3 && section_ >= 0) {
      key_ = std::move(name);
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    std::string_view message = error.what();
    if (const size_t end = message.find("] "); end != std::string_view::npos) message.remove_prefix(end + 2);
    base::input_error("{}: {}", path_, base::printable(message, kLongestParserMessage));
  }

 private:
  const ListSection& section() const { return kListSections[static_cast<size_t>(section_)]; }
  bool in_entry() const { return open_ == 3 && section_ >= 0; }
  bool wants_text() const { return in_entry() && key_ == section().text && !key_.empty(); }
  /// Which of the entry's integers the current key refers to, if any.
  std::optional<int64_t>* wanted_number() {
    if (!in_entry() || key_.empty()) return nullptr;
    for (size_t i = 0; i < 2; ++i) {
      if (key_ == section().numbers[i]) return &entry_.numbers[i];
    }
    return nullptr;
  }
  bool number(int64_t value) {
    std::optional<int64_t>* wanted = wanted_number();
    if (wanted == nullptr) return other(std::to_string(value));
    *wanted = value;
    return true;
  }
  std::string at_entry() const {
    return fmt::format("{}: '{}[{}]'", path_, section().name, counts_[static_cast<size_t>(section_)]);
  }

  /// A value that is not needed: ignored, unless another type is expected for this key.
  bool other(std::string_view found) {
    base::require(open_ != 0, "{}: expected a table, found {}", path_, found);
    if (section_ < 0) return true;
    base::require(open_ != 1, "{}: '{}': expected a list, found {}", path_, section().name, found);
    base::require(open_ != 2, "{}: expected a table, found {}", at_entry(), found);
    if (wants_text()) base::input_error("{}: '{}': expected a string, found {}", at_entry(), key_, found);
    if (wanted_number() != nullptr)
      base::input_error("{}: '{}': expected an integer, found {}", at_entry(), key_, found);
    return true;
  }

  void finish_entry() {
    const ListSection& list = section();
    for (size_t i = 0; i < 2; ++i) {
      base::require(list.numbers[i].empty() || entry_.numbers[i], "{}: expected the key '{}', found none", at_entry(),
                    list.numbers[i]);
    }
    base::require(list.text.empty() || entry_.text, "{}: expected the key '{}', found none", at_entry(), list.text);
    const int64_t id = *entry_.numbers[0];
    if (list.name == "images") {
      ids_.push_back(id);
      list_.paths.add(*entry_.text);
    } else if (list.name == "annotations") {
      annotations_.emplace_back(id, *entry_.numbers[1]);
    } else {
      base::require(list_.categories.emplace(id, *entry_.text).second, "{}: id {} appears twice", at_entry(), id);
    }
    ++counts_[static_cast<size_t>(section_)];
  }

  const std::string& path_;
  INaturalistList list_;
  std::vector<int64_t> ids_;                              // of the images
  std::vector<std::pair<int64_t, int64_t>> annotations_;  // image, category
  std::array<bool, 3> there_{};
  std::array<int64_t, 3> counts_{};
  int section_ = -1;  // index into kListSections; -1: another part of the file
  int64_t open_ = 0;
  std::string key_;
  ListEntry entry_;
};

INaturalistList ListReader::take() {
  for (size_t i = 0; i < kListSections.size(); ++i)
    base::require(there_[i], "{}: expected the key '{}', found none", path_, kListSections[i].name);
  std::sort(annotations_.begin(), annotations_.end());
  for (const int64_t id : ids_) {
    const auto found = std::lower_bound(annotations_.begin(), annotations_.end(), std::pair(id, INT64_MIN));
    base::require(found != annotations_.end() && found->first == id, "{}: image {}: no annotation is of it", path_, id);
    const int64_t category = found->second;
    for (auto next = found + 1; next != annotations_.end() && next->first == id; ++next) {
      base::require(next->second == category, "{}: image {}: expected one category, found {} and {}", path_, id,
                    category, next->second);
    }
    base::require(list_.categories.contains(category), "{}: image {}: category {} is not among the categories", path_,
                  id, category);
    list_.category_of.push_back(category);
  }
  return std::move(list_);
}

}  // namespace

INaturalistList read_inaturalist_list(const std::string& path) {
  const base::MappedFile file(path);
  base::require(file.size() <= kLargestList, "{}: {} bytes, the limit is {}", path, file.size(), kLargestList);
  ListReader reader(path);
  const std::string_view text = file.bytes();
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  } catch (const nlohmann::json::exception& error) {
    base::input_error("{}: {}", path, base::printable(error.what(), kLongestParserMessage));
  }
  return reader.take();
}

}  // namespace mnemo::data
