#include "data/text/token_store.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace mnemo::data {
namespace {

constexpr int64_t kBlock = int64_t{1} << 16;  // tokens

/// Calls `use` with a null pointer of the type that holds a token of `width` bytes.
template <class Use>
void with_type(int64_t width, Use&& use) {
  if (width == 1) {
    use(static_cast<uint8_t*>(nullptr));
  } else if (width == 2) {
    use(static_cast<uint16_t*>(nullptr));
  } else {
    use(static_cast<int32_t*>(nullptr));
  }
}

}  // namespace

TokenStore::TokenStore(int64_t vocabulary_size, bool documents)
    : vocabulary_size_(vocabulary_size),
      documents_(documents),
      width_(vocabulary_size <= 256     ? 1
             : vocabulary_size <= 65536 ? 2
                                        : 4),
      starts_{0} {
  base::ensure(vocabulary_size > 0 && vocabulary_size <= INT32_MAX, "a vocabulary of {} entries", vocabulary_size);
}

void TokenStore::append(std::span<const int32_t> ids) {
  while (!ids.empty()) {
    const int64_t within = size_ % kBlock;
    if (within == 0)
      blocks_.push_back(std::make_unique_for_overwrite<unsigned char[]>(static_cast<size_t>(kBlock * width_)));
    const auto count = std::min<size_t>(ids.size(), static_cast<size_t>(kBlock - within));
    with_type(width_, [&](auto* type) {
      auto* to = reinterpret_cast<decltype(type)>(blocks_.back().get()) + within;
      for (size_t i = 0; i < count; ++i) {
        const int32_t id = ids[i];
        base::ensure(id >= 0 && id < vocabulary_size_, "token id {} in a store of {}", id, vocabulary_size_);
        to[i] = static_cast<std::remove_reference_t<decltype(*type)>>(id);
        fingerprint_.mix(static_cast<uint64_t>(id));
      }
    });
    size_ += static_cast<int64_t>(count);
    ids = ids.subspan(count);
  }
}

void TokenStore::start_document() {
  base::ensure(documents_, "a document starts in a store without documents");
  if (starts_.back() == size_) return;
  starts_.push_back(size_);
  fingerprint_.mix(~uint64_t{0});
}

void TokenStore::count_text(int64_t bytes, int64_t characters) {
  text_bytes_ += bytes;
  text_characters_ += characters;
}

int64_t TokenStore::document_end(int64_t i) const {
  const auto next = static_cast<size_t>(i) + 1;
  return next < starts_.size() ? starts_[next] : size_;
}

double TokenStore::characters_per_token() const {
  return size_ == 0 ? 0.0 : static_cast<double>(text_characters_) / static_cast<double>(size_);
}

int64_t TokenStore::num_bytes() const {
  return static_cast<int64_t>(blocks_.size() * (static_cast<size_t>(kBlock * width_) + sizeof(void*)) +
                              starts_.capacity() * sizeof(int64_t));
}

void TokenStore::read(int64_t begin, std::span<int64_t> out) const {
  base::ensure(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= size_, "tokens [{}, {}) of a store of {}",
               begin, begin + static_cast<int64_t>(out.size()), size_);
  while (!out.empty()) {
    const int64_t within = begin % kBlock;
    const auto count = std::min<size_t>(out.size(), static_cast<size_t>(kBlock - within));
    with_type(width_, [&](auto* type) {
      const auto* from = reinterpret_cast<decltype(type)>(blocks_[static_cast<size_t>(begin / kBlock)].get()) + within;
      std::copy_n(from, count, out.begin());
    });
    begin += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
}

at::Tensor TokenStore::slice(int64_t begin, int64_t count) const {
  base::ensure(count >= 0, "a slice of {} tokens", count);
  at::Tensor out = at::empty({count}, at::kLong);
  read(begin, std::span(out.mutable_data_ptr<int64_t>(), static_cast<size_t>(count)));
  return out;
}

}  // namespace mnemo::data
