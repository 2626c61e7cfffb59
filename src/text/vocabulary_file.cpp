#include "text/vocabulary_file.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_sax.h"
#include "base/printable.h"

namespace mnemo::text {
namespace {

/// Accepts only one flat object; a DOM would need sixteen bytes for every "0," of a malicious file.
class Reader final : public base::JsonSax {
 public:
  Reader(VocabularyFile& file, const std::string& where) : JsonSax(where), file_(file) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a number"); }
  bool number_unsigned(number_unsigned_t) override { unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number"); }

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

  void finish() const { base::require(saw_type_, "{}: expected the key \"type\"", where_); }

 private:
  [[noreturn]] void unexpected(std::string_view found) const {
    std::string_view expected = key_ == "vocabulary" ? "an array of strings" : "a string";
    if (in_array_) expected = "a string as an entry";
    if (!in_object_) expected = "an object";
    const std::string at = key_.empty() ? std::string() : fmt::format(" at \"{}\"", key_);
    base::input_error("{}: expected {}{}, found {} (entry {})", where_, expected, at, found, file_.entries.size());
  }

  VocabularyFile& file_;
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
