#include <sentencepiece_trainer.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "text/open_tokenizer.h"
#include "text/piece_encoder.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_status.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8_error.h"

namespace mnemo::text {
namespace {

/// SentencePiece skips longer lines than this by default; we set its limit to the longest line.
constexpr size_t kUsualLine = 4192;
constexpr size_t kLongestTrainingLine = size_t{1} << 20;
/// For unigram the library compares repetitions inside a line with one another, in time that grows with their length.
/// For BPE it ends the process at a word of more than 65,535 characters; its rules make at most 18 of three bytes.
constexpr size_t kLongestPart = 8192;
constexpr std::string_view kMarkOfSpace = "\u2581", kUnknownMark = "\u2585";

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

/// The lines of a text that are not empty.
void read_lines(const TextSource& text, std::vector<std::string>& lines) {
  int64_t offset = text.begin();
  std::string pending;
  const auto finish = [&] {
    if (const auto bad = base::first_invalid_utf8(pending))
      invalid_utf8(text.path(), offset + static_cast<int64_t>(*bad), std::string_view(pending).substr(*bad),
                   kConvertFile);
    offset += static_cast<int64_t>(pending.size()) + 1;
    if (!pending.empty()) lines.push_back(std::move(pending));
    pending.clear();
  };
  text.for_each_chunk([&](std::string_view chunk) {
    while (!chunk.empty()) {
      const size_t end = std::min(chunk.find('\n'), chunk.size());
      base::require(pending.size() + end <= kLongestTrainingLine, "{}: a line of more than {} bytes at byte {}",
                    text.path(), kLongestTrainingLine, offset);
      pending += chunk.substr(0, end);
      if (end == chunk.size()) break;
      finish();
      chunk.remove_prefix(end + 1);
    }
    return true;
  });
  finish();
}

/// Cuts lines that are longer than that, at a blank where there is one.
void cut_lines(std::vector<std::string>& lines, const std::string& where) {
  std::vector<std::string> cut;
  int64_t long_lines = 0;
  for (std::string& line : lines) {
    std::string_view rest = line;
    long_lines += rest.size() > kLongestPart;
    while (rest.size() > kLongestPart) {
      size_t end = rest.rfind(' ', kLongestPart);
      if (end == std::string_view::npos || end == 0) end = kLongestPart;
      while ((static_cast<unsigned char>(rest[end]) & 0xC0) == 0x80) --end;
      cut.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    if (rest.size() == line.size()) {
      cut.push_back(std::move(line));
    } else if (!rest.empty()) {
      cut.emplace_back(rest);
    }
  }
  if (long_lines > 0)
    base::log_info("{}: {} of more than {} bytes: cut for the training of the tokenizer", where,
                   base::counted(long_lines, "line"), kLongestPart);
  lines = std::move(cut);
}

/// Trains with the options given and those of every model. A text with fewer pieces gives as many as it has, with a
/// warning. Throws InputError that names `where`.
std::string train(const std::string& type, int64_t vocab_size, const std::vector<std::string>& lines,
                  const std::string& where) {
  size_t longest = kUsualLine;
  for (const std::string& line : lines) longest = std::max(longest, line.size());
  std::string file;
  // One thread: sums are then made in one order, and the model is always the same.
  const auto attempt = [&] {
    Lines iterator(lines);
    file.clear();
    return sentencepiece::SentencePieceTrainer::Train({{"model_type", type},
                                                       {"vocab_size", std::to_string(vocab_size)},
                                                       {"max_sentence_length", std::to_string(longest)},
                                                       {"pad_id", "3"},
                                                       {"num_threads", "1"},
                                                       {"minloglevel", "2"}},
                                                      &iterator, &file);
  };
  sentencepiece::util::Status status = attempt();
  if (const std::optional<int64_t> most = most_pieces(status)) {
    base::log_warning("{}: the text has {} pieces, fewer than the {} of data.max_vocabulary or --vocab-size; takes {}",
                      where, *most, vocab_size, *most);
    vocab_size = *most;
    status = attempt();
  }
  require_ok(status, where);
  return file;
}

/// Whether the library finds characters in one of the lines. Where it finds none it ends the process.
bool any_characters(const std::vector<std::string>& lines) {
  // The library hands out its rules of characters in a model alone: four special tokens, the mark of spaces and "a".
  const SentencePieceModel model = read_sentencepiece_model(train("bpe", 6, {"a"}, "rules"), "rules");
  const auto rules = make_piece_encoder(model, "rules");
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    std::string normalised = rules->normalise(line);
    if (normalised.find(kUnknownMark) != std::string::npos) return false;  // the library skips such lines
    base::replace_all(normalised, kMarkOfSpace, "");
    return normalised.find_first_not_of('\0') != std::string::npos;
  });
}

}  // namespace

std::shared_ptr<const Tokenizer> train_sentencepiece(std::string_view type, const std::vector<TextSource>& texts,
                                                     int64_t vocab_size) {
  base::require(type == "unigram" || type == "bpe", "expected the type \"unigram\" or \"bpe\", found {}",
                base::in_quotes(type));
  base::require(vocab_size >= 5 && vocab_size <= 10'000'000,
                "vocabulary size (data.max_vocabulary, --vocab-size): expected 5 to 10000000, found {}", vocab_size);
  base::require(!texts.empty(), "expected a text to train a tokenizer on, found none");
  std::vector<std::string> lines;
  for (const TextSource& text : texts) read_lines(text, lines);
  const std::string& where = texts.front().path();
  base::require(!lines.empty(), "{}: no lines to train a tokenizer on", where);
  base::require(any_characters(lines),
                "{}: expected characters to train a tokenizer on, found only white space, "
                "control characters and the like",
                where);
  cut_lines(lines, where);
  const std::string file = train(std::string(type), vocab_size, lines, where);
  return open_tokenizer_files({{kTrainedModelFile, file}}, where);
}

}  // namespace mnemo::text
