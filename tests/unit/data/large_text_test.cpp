#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "data/text/corpus.h"
#include "data/text/streams.h"
#include "tests/support/text_file.h"

namespace mnemo::data {
namespace {

/// Memory of this process in bytes, current and peak (both anonymous and file pages).
int64_t status_bytes(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) return std::stoll(line.substr(std::string_view(key).size() + 1)) * 1024;
  }
  return -1;
}

TEST(LargeTextSlow, IsNeverHeldTwice) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  constexpr int64_t kSize = int64_t{400} << 20;
  const test::TextFile file;
  {
    std::ofstream out(file.path(), std::ios::binary);
    std::string block;
    for (int i = 0; block.size() < (1 << 20); ++i)
      block += fmt::format("Line {} of a long text, \xC3\xA9 and all.\n", i);
    for (int64_t written = 0; written < kSize; written += static_cast<int64_t>(block.size())) out << block;
    ASSERT_TRUE(out.flush());
  }
  const text::TextSource whole(file.path());
  for (const auto unit : {TextOptions::Unit::bytes, TextOptions::Unit::characters}) {
    const int64_t before = status_bytes("VmRSS:");
    std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
    TextOptions options;
    options.train = file.path();
    options.unit = unit;
    options.document_separator = options.any_bytes() ? DocumentRule::Kind::none : DocumentRule::Kind::blank_line;
    options.valid_fraction = options.test_fraction = 0;
    const Corpus corpus = load_corpus(options);
    const int64_t peak = status_bytes("VmHWM:") - before;
    std::printf("%s: %lld MB of text, %lld MB of tokens, %lld MB at most\n", options.unit_name().c_str(),
                static_cast<long long>(whole.size() >> 20), static_cast<long long>(corpus.num_bytes() >> 20),
                static_cast<long long>(peak >> 20));
    EXPECT_EQ(corpus.train->text_bytes(), whole.size());
    // One byte per token, the buffers of one chunk, and nothing else.
    EXPECT_LE(corpus.num_bytes(), whole.size() + (1 << 20));
    EXPECT_LE(peak, corpus.num_bytes() + (int64_t{24} << 20));
    StreamBatches batches(corpus.train, {.batch_size = 1});
    EXPECT_EQ(batches.next(8, 1)[0].input.tokens.size(1), 8);
  }
}

}  // namespace
}  // namespace mnemo::data
