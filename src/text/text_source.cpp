#include "text/text_source.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/utf8.h"

namespace mnemo::text {

TextSource::TextSource(std::string path) : path_(std::move(path)) {
  end_ = static_cast<int64_t>(base::FileReader(path_).size());
}

TextSource TextSource::streamed(std::string name, Reader reader) {
  TextSource source;
  source.path_ = std::move(name);
  reader([&](std::string_view piece) { source.end_ += static_cast<int64_t>(piece.size()); });
  source.reader_ = std::move(reader);
  return source;
}

TextSource TextSource::in_memory(std::string name, std::string text) {
  TextSource source;
  source.path_ = std::move(name);
  source.end_ = static_cast<int64_t>(text.size());
  source.text_ = std::make_shared<const std::string>(std::move(text));
  return source;
}

TextSource TextSource::range(int64_t begin, int64_t end) const {
  base::ensure(begin_ <= begin && begin <= end && end <= end_, "range [{}, {}) of {} is not inside [{}, {})", begin,
               end, path_, begin_, end_);
  TextSource part = *this;
  part.begin_ = begin;
  part.end_ = end;
  return part;
}

TextSource TextSource::without_byte_order_mark() const {
  if (begin_ > 0 || size() < static_cast<int64_t>(base::kByteOrderMark.size())) return *this;
  TextSource start = range(0, base::kByteOrderMark.size()), text = *this;
  start.for_each_chunk([&](std::string_view found) {
    if (found == base::kByteOrderMark) text = range(base::kByteOrderMark.size(), end_);
    return false;
  });
  return text;
}

void TextSource::for_each_chunk(const std::function<bool(std::string_view)>& use, int64_t chunk_size) const {
  if (size() == 0) return;
  if (text_) {
    for (int64_t at = begin_; at < end_; at += chunk_size) {
      const int64_t wanted = std::min(chunk_size, end_ - at);
      if (!use(std::string_view(*text_).substr(static_cast<size_t>(at), static_cast<size_t>(wanted)))) return;
    }
    return;
  }
  if (reader_) return stream(use, chunk_size);
  const base::FileReader file(path_);
  std::vector<char> buffer(static_cast<size_t>(std::min(chunk_size, size())));
  for (int64_t at = begin_; at < end_;) {
    const auto wanted = static_cast<size_t>(std::min(static_cast<int64_t>(buffer.size()), end_ - at));
    file.read_at(static_cast<uint64_t>(at), buffer.data(), wanted);
    at += static_cast<int64_t>(wanted);
    if (!use(std::string_view(buffer.data(), wanted))) return;
  }
}

void TextSource::stream(const std::function<bool(std::string_view)>& use, int64_t chunk_size) const {
  struct Enough {};  // ends reading; no error
  const auto full = static_cast<size_t>(std::min(chunk_size, size()));
  std::string chunk;
  int64_t at = 0;
  try {
    reader_([&](std::string_view piece) {
      const int64_t before = at, count = static_cast<int64_t>(piece.size());
      at += count;
      piece = piece.substr(0, static_cast<size_t>(std::clamp(end_ - before, int64_t{0}, count)));
      piece.remove_prefix(std::min(piece.size(), static_cast<size_t>(std::max(begin_ - before, int64_t{0}))));
      while (!piece.empty()) {
        const size_t part = std::min(piece.size(), full - chunk.size());
        chunk += piece.substr(0, part);
        piece.remove_prefix(part);
        if (chunk.size() < full && (at < end_ || !piece.empty())) continue;
        if (!use(chunk)) throw Enough();
        chunk.clear();
      }
      if (at >= end_) throw Enough();
    });
  } catch (const Enough&) {
    return;
  }
  base::input_error("{}: expected {} bytes of text as before, found {}; it has changed meanwhile", path_, end_, at);
}

}  // namespace mnemo::text
