#include "text/vocabulary_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_value.h"
#include "base/printable.h"

namespace mnemo::text {
namespace {

/// Accepts only one flat object; a DOM would need sixteen bytes for every "0," of a malicious file.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(VocabularyFile& file, const std::string& where) : file_(file), where_(where) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a number"); }
  bool number_unsigned(number_unsigned_t) override { unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool string(string_t& value) override {
    if (in_array_) {
      file_.entries.push_back(value);
    } else if (in_object_ && key_ == "type") {
      file_.type = value;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (in_object_) unexpected("an object");
    in_object_ = true;
    return true;
  }
  bool end_object() override { return true; }

  bool key(string_t& name) override {
    base::require(name == "type" || name == "vocabulary", "{}: unknown key \"{}\"; expected \"type\" or \"vocabulary\"",
                  where_, base::printable(name, 40));
    bool& seen = name == "type" ? saw_type_ : file_.has_entries;
    base::require(!seen, "{}: the key \"{}\" appears twice", where_, name);
    seen = true;
    key_ = name;
    return true;
  }

  bool start_array(size_t) override {
    if (in_array_ || key_ != "vocabulary") unexpected("an array");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // The library's message contains the last token read, which can be as long as the file.
    base::input_error("{}: broken JSON at byte {}: {}", where_, position,
                      base::printable(base::json_parser_words(e.what()), 200));
  }

  void finish() const { base::require(saw_type_, "{}: expected the key \"type\"", where_); }

 private:
  [[noreturn]] void unexpected(std::string_view found) const {
    const std::string_view expected = !in_object_            ? "an object"
                                      : in_array_            ? "a string as an entry"
                                      : key_ == "vocabulary" ? "an array of strings"
                                                             : "a string";
    const std::string at = key_.empty() ? std::string() : fmt::format(" at \"{}\"", key_);
    base::input_error("{}: expected {}{}, found {} (entry {})", where_, expected, at, found, file_.entries.size());
  }

  VocabularyFile& file_;
  const std::string& where_;
  std::string key_;
  bool in_object_ = false, in_array_ = false, saw_type_ = false;
};

}  // namespace

void EntryList::push_back(std::string_view entry) {
  base::require(bytes_.size() + entry.size() <= UINT32_MAX && ends_.size() < INT32_MAX,
                "a vocabulary of more than 4 GB or 2^31 entries");
  bytes_ += entry;
  ends_.push_back(static_cast<uint32_t>(bytes_.size()));
}

std::string write_vocabulary(const VocabularyFile& file) {
  const auto quote = [](std::string_view text) { return nlohmann::json(text).dump(); };
  std::string out = "{\n  \"type\": " + quote(file.type);
  if (file.has_entries) {
    out += ",\n  \"vocabulary\": [";
    for (int64_t i = 0; i < file.entries.size(); ++i) {
      out += i == 0 ? "\n    " : ",\n    ";
      out += quote(file.entries[i]);
    }
    out += "\n  ]";
  }
  return out + "\n}\n";
}

VocabularyFile read_vocabulary(std::string_view text, const std::string& where) {
  VocabularyFile file;
  // An entry takes at least two quotes and a comma; most have at least one letter.
  file.entries.reserve(text.size(), text.size() / 4 + 1);
  Reader reader(file, where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  reader.finish();
  return file;
}

}  // namespace mnemo::text
