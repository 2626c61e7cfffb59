#include <memory>

#include "base/node.h"
#include "tests/verify/line_file.h"
#include "text/open_tokenizer.h"

namespace mnemo::verify {
namespace {

/// The tokenizers of one folder, each opened when a line first asks for it.
class FolderTokenizers {
 public:
  explicit FolderTokenizers(std::string folder) : folder_(std::move(folder)) {}

  const text::Tokenizer& plain() { return opened(plain_, {.fairseq_ids = false}); }
  const text::Tokenizer& fairseq() { return opened(fairseq_, {}); }
  const text::Tokenizer& digit_commas() { return opened(digit_commas_, {.digit_commas = true}); }

 private:
  const text::Tokenizer& opened(std::shared_ptr<const text::Tokenizer>& tokenizer, const text::OpenOptions& options) {
    if (!tokenizer) tokenizer = text::open_tokenizer(folder_, options);
    return *tokenizer;
  }

  std::string folder_;
  std::shared_ptr<const text::Tokenizer> plain_, fairseq_, digit_commas_;
};

void compare_ids(LineObject& line, const char* field, const std::string& text, const text::Tokenizer& tokenizer,
                 LineComparison& comparison) {
  const std::vector<int64_t> expected = line.integers(field);
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const std::vector<int64_t> found(ids.begin(), ids.end());
  comparison.equal(
      field, field, expected == found, [&] { return list_text(expected, found); },
      [&] { return list_text(found, expected); });
}

/// With the special tokens around the text.
void compare_input(LineObject& line, const std::string& text, const text::Tokenizer& tokenizer,
                   LineComparison& comparison) {
  const std::vector<int64_t> expected = line.integers("input_ids");
  const std::vector<int32_t> ids = tokenizer.with_special_tokens(tokenizer.encode(text)).ids;
  const std::vector<int64_t> found(ids.begin(), ids.end());
  comparison.equal(
      "input_ids", "input_ids", expected == found, [&] { return list_text(expected, found); },
      [&] { return list_text(found, expected); });
}

void compare_decoded(LineObject& line, const text::Tokenizer& tokenizer, LineComparison& comparison) {
  const std::string expected = line.text("decoded");
  std::string found;
  try {
    found = tokenizer.decode(line.integers("ids"));
  } catch (const base::InputError& error) {
    found = error.what();  // an id that this tokenizer does not have
  }
  comparison.equal(
      "decoded", "decoded", expected == found, [&] { return base::in_quotes(expected); },
      [&] { return base::in_quotes(found); });
}

}  // namespace

CompareLine compare_with_tokenizer(const std::string& folder) {
  return [tokenizers = std::make_shared<FolderTokenizers>(folder)](LineObject& line, LineComparison& comparison) {
    const std::string text = line.text("text");
    compare_ids(line, "ids", text, tokenizers->plain(), comparison);
    if (line.contains("decoded")) compare_decoded(line, tokenizers->plain(), comparison);
    if (line.contains("input_ids")) compare_input(line, text, tokenizers->plain(), comparison);
    if (line.contains("roberta_ids")) compare_ids(line, "roberta_ids", text, tokenizers->fairseq(), comparison);
    if (line.contains("comma_ids")) compare_ids(line, "comma_ids", text, tokenizers->digit_commas(), comparison);
    if (line.contains("tokenizers_ids")) {
      line.integers("tokenizers_ids");
      comparison.skip("tokenizers_ids");
    }
  };
}

}  // namespace mnemo::verify
