#include "text/tokenizer.h"

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/utf8.h"
#include "text/tokenizer_types.h"

namespace mnemo::text {

std::string unit_of(const Tokenizer& tokenizer) {
  const std::string type = tokenizer.type();
  return type == "bytes" || type == "characters" || type == "words" ? type : "pieces";
}

void report_unknown(const Tokenizer& tokenizer, const std::string& where, int64_t count, int64_t total,
                    Unknown unknown) {
  if (count == 0) return;
  const std::string text = fmt::format("{}: {} of {} {} are not in the model's vocabulary", where, base::grouped(count),
                                       base::grouped(total), unit_of(tokenizer));
  base::require(unknown == Unknown::warn, "{}", text);
  base::log_warning("{} and are read as <unk>", text);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::string where, Unknown unknown) const {
  std::vector<int32_t> ids;
  const auto encoder = this->encoder(where);
  encoder->put(text, ids);
  encoder->finish(ids);
  report_unknown(*this, where, encoder->num_unknown(), static_cast<int64_t>(ids.size()), unknown);
  return ids;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, std::string where) const {
  std::vector<int32_t> ids;
  const auto encoder = this->encoder(std::move(where));
  encoder->put(text, ids);
  encoder->finish(ids);
  return ids;
}

ModelInput Tokenizer::with_special_tokens(std::span<const int32_t> first,
                                          std::optional<std::span<const int32_t>> second) const {
  return SequenceTemplate().apply(first, second);
}

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  std::string out;
  for (const int64_t id : ids) append(out, id);
  return out;
}

std::string Tokenizer::decode(const at::Tensor& ids) const {
  const at::Tensor flat = ids.to(at::kCPU, at::kLong).contiguous();
  return decode(std::span(flat.const_data_ptr<int64_t>(), static_cast<size_t>(flat.numel())));
}

void Tokenizer::require_id(int64_t id) const {
  base::require(id >= 0 && id < size(), "token id {} is not in the vocabulary of {} {}", id, size(), type());
}

std::string StreamDecoder::put(int64_t id) {
  std::string text = last_;
  tokenizer_->append(text, id);
  pending_ += std::string_view(text).substr(last_.size());
  if (!text.empty()) last_ = text.back();
  return base::take_valid_utf8(pending_, false);
}

std::string StreamDecoder::finish() { return base::take_valid_utf8(pending_, true); }

std::shared_ptr<const Tokenizer> make_tokenizer(std::string_view type, const TextSource& training_text,
                                                VocabularyLimits limits) {
  if (type == "bytes") return make_byte_tokenizer();
  if (type == "characters") return make_character_tokenizer(training_text, limits);
  base::require(type == "words", "unit: expected \"bytes\", \"characters\" or \"words\", found \"{}\"",
                base::printable(type, 40));
  return make_word_tokenizer(training_text, limits);
}

std::shared_ptr<const Tokenizer> Tokenizer::load(const Files& files, const std::string& where) {
  const auto file = files.find(std::string(kFile));
  base::require(file != files.end(), "{}: the file {} is missing", where, kFile);
  const std::string path = where.empty() ? std::string(kFile) : fmt::format("{}/{}", where, kFile);
  VocabularyFile vocabulary = read_vocabulary(file->second, path);
  if (vocabulary.type == "bytes") {
    base::require(!vocabulary.has_entries, "{}: type \"bytes\" has no \"vocabulary\"", path);
    return make_byte_tokenizer();
  }
  const bool characters = vocabulary.type == "characters";
  base::require(characters || vocabulary.type == "words",
                "{}: \"type\": expected \"bytes\", \"characters\" or \"words\", found \"{}\"", path,
                base::printable(vocabulary.type, 40));
  base::require(vocabulary.has_entries, "{}: type \"{}\" needs the key \"vocabulary\"", path, vocabulary.type);
  return characters ? character_tokenizer_from(std::move(vocabulary.entries), path)
                    : word_tokenizer_from(std::move(vocabulary.entries), path);
}

}  // namespace mnemo::text
