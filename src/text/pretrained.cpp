#include "text/pretrained.h"

#include <algorithm>

#include "base/printable.h"
#include "text/utf8_error.h"

namespace mnemo::text {
namespace {

/// Enough text for its cut to be worth looking for.
constexpr size_t kPart = size_t{1} << 16;

class PartEncoder final : public Encoder {
 public:
  PartEncoder(const PretrainedTokenizer& tokenizer, std::string where, int64_t offset)
      : tokenizer_(tokenizer), where_(std::move(where)), offset_(offset) {}

  void put(std::string_view chunk, std::vector<int32_t>& out) override {
    pending_ += chunk;
    if (pending_.size() < next_look_) return;
    const size_t cut = tokenizer_.last_cut(pending_);
    if (cut > 0) {
      encode(cut, out);
      pending_.erase(0, cut);
    }
    // A text without a cut is looked through a few times only, however long it becomes.
    next_look_ = std::max(kPart, 2 * pending_.size());
  }

  void finish(std::vector<int32_t>& out) override {
    if (!pending_.empty() || begins_ == PartBegins::text) encode(pending_.size(), out);
  }

 private:
  void encode(size_t size, std::vector<int32_t>& out) {
    const std::string_view part = std::string_view(pending_).substr(0, size);
    if (const auto bad = base::first_invalid_utf8(part))
      invalid_utf8(where_, offset_ + static_cast<int64_t>(*bad), part.substr(*bad), kConvertFile);
    const size_t before = out.size();
    tokenizer_.encode_part(part, begins_, out);
    if (const int64_t unknown = tokenizer_.unknown_id(); unknown >= 0)
      num_unknown_ += std::count(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), unknown);
    begins_ = PartBegins::nothing;
    offset_ += static_cast<int64_t>(size);
  }

  const PretrainedTokenizer& tokenizer_;
  std::string where_;
  int64_t offset_;  // of the first byte of pending_
  std::string pending_;
  size_t next_look_ = kPart;
  PartBegins begins_ = PartBegins::text;
};

}  // namespace

Files PretrainedTokenizer::save() const {
  Files all = parts_->files;
  all.insert(parts_->beside.begin(), parts_->beside.end());
  return all;
}

std::unique_ptr<Encoder> PretrainedTokenizer::encoder(std::string where, int64_t offset) const {
  return std::make_unique<PartEncoder>(*this, std::move(where), offset);
}

}  // namespace mnemo::text
