#include "data/prepare/enwik8.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "data/prepare/output.h"

namespace mnemo::data {
namespace {

constexpr const char* kEnwik8From = "https://mattmahoney.net/dc/enwik8.zip (unpack it)";

std::string sha256_of(const text::TextSource& text) {
  base::Sha256 sum;
  text.for_each_chunk([&](std::string_view chunk) {
    sum.update(chunk);
    return true;
  });
  return sum.hex();
}

Prepared prepare_enwik8(const std::string& file, const PrepareTarget& out, const base::Node&) {
  struct Known {
    int64_t size;
    std::string_view sum;
  };
  // The complete file, and its first 4,000,000 bytes.
  constexpr std::array<Known, 2> kKnown = {
      {{100'000'000, "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"},
       {4'000'000, "9f9ca3a41e2b87a0268d00380577e2c308e07959b22a94c8d7b1e8901bdefc37"}}};
  const text::TextSource whole(file);
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& one) { return one.size == whole.size(); });
  base::require(known != kKnown.end(), "{}: expected enwik8, {} bytes, or its first {}, found {} bytes; get it from {}",
                file, kKnown[0].size, kKnown[1].size, whole.size(), kEnwik8From);
  const std::string sum = sha256_of(whole);
  base::require(sum == known->sum,
                "{}: expected enwik8 with SHA-256 {}, found {}: the file is damaged, or another; get it from {}", file,
                known->sum, sum, kEnwik8From);
  Output output(out, kTextFiles);
  Prepared prepared;
  const std::array<int64_t, 4> borders = {0, whole.size() / 100 * 90, whole.size() / 100 * 95, whole.size()};
  for (size_t i = 0; i < kParts.size(); ++i) {
    const text::TextSource part = whole.range(borders[i], borders[i + 1]);
    output.copy(part, i);
    prepared.parts.push_back({kParts[i], output.path(i), part.size(), 1, part.size()});
  }
  prepared.recipe = output.commit("enwik8: 90, 5 and 5 % of the bytes", "type = \"text\"\nunit = \"bytes\"\n",
                                  prepared.parts);
  return prepared;
}

}  // namespace

DataSet enwik8() {
  return {
      .what = "100,000,000 bytes of Wikipedia, or its first 4,000,000", .from = kEnwik8From, .prepare = prepare_enwik8};
}

}  // namespace mnemo::data
