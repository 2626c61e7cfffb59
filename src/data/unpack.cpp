#include "data/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"

namespace mnemo::data {
namespace {

/// A content beyond both is taken for a mistake or an attack: text packs by 2 to 20.
constexpr uint64_t kUnpackedFreely = 1'000'000'000, kMostRatio = 200;
constexpr size_t kPiece = size_t{1} << 18;

/// Calls `use` with the file as it is, piece by piece.
void read_pieces(const std::string& path, const std::function<void(std::string_view)>& use) {
  const base::FileReader file(path);
  std::vector<char> piece(kPiece);
  for (uint64_t at = 0; at < file.size();) {
    const auto count = static_cast<size_t>(std::min<uint64_t>(piece.size(), file.size() - at));
    file.read_at(at, piece.data(), count);
    at += count;
    use({piece.data(), count});
  }
}

void gunzip(const std::string& path, const std::function<void(std::string_view)>& use) {
  struct Inflater {
    z_stream stream{};
    Inflater() { base::ensure(inflateInit2(&stream, 15 + 16) == Z_OK, "zlib cannot start"); }
    ~Inflater() { inflateEnd(&stream); }
  } inflater;
  z_stream& stream = inflater.stream;
  std::vector<char> out(kPiece);
  bool ended = false;
  read_pieces(path, [&](std::string_view packed) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    do {
      // Tapes and disks fill a block with zeros behind the last member.
      for (; ended && stream.avail_in > 0 && *stream.next_in == 0; ++stream.next_in) --stream.avail_in;
      if (ended && stream.avail_in == 0) return;
      if (ended) base::ensure(inflateReset(&stream) == Z_OK, "zlib cannot start again");
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(out.size());
      const int status = inflate(&stream, Z_NO_FLUSH);
      base::require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, "{}: gzip: {}", path,
                    stream.msg != nullptr ? stream.msg : "the file is damaged");
      ended = status == Z_STREAM_END;
      use({out.data(), out.size() - stream.avail_out});
    } while (stream.avail_in > 0 || stream.avail_out == 0);
  });
  base::require(ended, "{}: gzip: the file is truncated", path);
}

void unzstd(const std::string& path, const std::function<void(std::string_view)>& use) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  base::ensure(stream != nullptr, "zstd cannot start");
  std::vector<char> out(ZSTD_DStreamOutSize());
  size_t left = 1;  // 0: a frame has ended
  read_pieces(path, [&](std::string_view packed) {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    for (bool full = false; in.pos < in.size || full;) {
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      left = ZSTD_decompressStream(stream.get(), &to, &in);
      base::require(ZSTD_isError(left) == 0, "{}: zstd: {}", path, ZSTD_getErrorName(left));
      use({out.data(), to.pos});
      full = to.pos == to.size && left != 0;
    }
  });
  base::require(left == 0, "{}: zstd: the file is truncated", path);
}

}  // namespace

Packing packing_of(std::string_view path) {
  return path.ends_with(".gz") ? Packing::gzip : path.ends_with(".zst") ? Packing::zstd : Packing::none;
}

void unpack(const std::string& path, Packing packing, const std::function<void(std::string_view)>& use) {
  if (packing == Packing::none) return read_pieces(path, use);
  const uint64_t packed = base::FileReader(path).size();
  uint64_t size = 0;
  const auto count = [&](std::string_view piece) {
    size += piece.size();
    base::require(size <= kUnpackedFreely || size / kMostRatio <= packed,
                  "{}: its {} bytes unpack to more than {} times as many, beyond {}; expected a text; unpack it "
                  "yourself to use it all the same",
                  path, packed, kMostRatio, kUnpackedFreely);
    use(piece);
  };
  packing == Packing::gzip ? gunzip(path, count) : unzstd(path, count);
}

uint64_t unpacked_size(const std::string& path, Packing packing) {
  if (packing == Packing::none) return base::FileReader(path).size();
  uint64_t size = 0;
  unpack(path, packing, [&](std::string_view piece) { size += piece.size(); });
  return size;
}

}  // namespace mnemo::data
