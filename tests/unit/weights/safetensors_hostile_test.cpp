#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/memory_meter.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/weights/all_dtypes.h"
#include "tests/unit/weights/raw_safetensors.h"
#include "weights/safetensors.h"

namespace mnemo::weights {
namespace {

using test::raw_safetensors;

constexpr int64_t kMegabyte = 1 << 20;

// Without the fsync of an atomic write, which would be slow for hundreds of files.
void write_plainly(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string small_model() {
  return encode_safetensors({{"embedding.weight", at::arange(24, at::kFloat).reshape({4, 6})},
                             {"layer.0.weight", at::ones({3, 3}, at::kBFloat16)},
                             {"layer.0.mask", at::ones({5}, at::kBool)},
                             {"step", at::ones({}, at::kLong)}},
                            {{"format", "pt"}, {"note", "\xc3\xa4 \"quoted\""}});
}

TEST(SafetensorsHostile, TruncationAtEveryByteIsAnError) {
  const test::TemporaryFolder folder;
  const std::string whole = small_model();
  ASSERT_NO_THROW(read_safetensors(whole, "whole"));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(read_safetensors(std::string_view(whole).substr(0, length), "cut"), base::InputError) << length;
    write_plainly(folder / "cut", whole.substr(0, length));
    EXPECT_THROW(read_safetensors(folder / "cut"), base::InputError) << length;
  }
}

// A flipped bit in the data gives another value; one in the header gives an error or another name, never anything else.
TEST(SafetensorsHostile, HundredThousandBitFlips) {
  const std::string whole = small_model();
  const TensorFile original = read_safetensors(whole, "whole");
  const size_t data_bytes = 24 * 4 + 9 * 2 + 5 + 8;
  const size_t data_start = whole.size() - data_bytes;
  std::mt19937_64 random(7);
  int errors = 0;
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string flipped = whole;
    const size_t byte = random() % flipped.size();
    flipped[byte] = static_cast<char>(flipped[byte] ^ 1 << random() % 8);
    try {
      const TensorFile file = read_safetensors(flipped, "flipped");
      size_t bytes = 0;
      for (const auto& [name, tensor] : file.tensors) bytes += tensor.nbytes();
      EXPECT_EQ(bytes, data_bytes);
      ++read;
    } catch (const base::InputError&) {
      EXPECT_LT(byte, data_start) << "a flip in the data is no error";
      ++errors;
    }
  }
  // Both must occur, or the test would miss its purpose.
  EXPECT_GT(errors, 10'000);
  EXPECT_GT(read, 10'000);
}

TEST(SafetensorsHostile, FlippedPairsAndSplices) {
  const std::string whole = small_model();
  std::mt19937_64 random(8);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = whole;
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % changed.size();
      const size_t from = random() % changed.size();
      const size_t n = random() % 12;
      if (random() % 2 == 0) {
        changed.insert(at, changed.substr(from, n));
      } else {
        changed.erase(at, n);
      }
      if (changed.empty()) changed = "x";
    }
    try {
      read_safetensors(changed, "changed");
    } catch (const base::InputError&) {
    }
  }
}

struct Attack {
  std::string what;
  std::string bytes;
  bool valid = false;
};

std::string tiny_entries(int count, const std::string& tail) {
  std::string header = "{";
  for (int i = 0; i < count; ++i)
    header += "\"" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},";
  header += tail;
  if (header.back() == ',') header.pop_back();
  return header + "}";
}

std::vector<Attack> attacks() {
  std::vector<Attack> all;
  const auto header = [&](const std::string& what, const std::string& json, bool valid = false) {
    all.push_back({what, raw_safetensors(json), valid});
  };
  all.push_back({"length of 2^64 - 1", raw_safetensors(~uint64_t{0}, "{}", ""), false});
  all.push_back({"length of 10^8 in a small file", raw_safetensors(100'000'000, "{}", ""), false});
  header("a huge shape", R"({"a":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}})");
  header("a huge product", R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})");
  header("a huge empty shape", R"({"a":{"dtype":"U8","shape":[0,576460752303423488],"data_offsets":[0,0]}})", true);
  std::string ones;
  for (int i = 0; i < 1'000'000; ++i) ones += "1,";
  header("a million dimensions of 1", R"({"a":{"dtype":"U8","shape":[)" + ones + R"(1],"data_offsets":[0,1]}})");
  for (const std::string open : {"[", "{\"a\":", "{", "[["}) {
    std::string deep = "{\"a\":";
    while (deep.size() < 3'000'000) deep += open;
    header("deep nesting of " + open, deep);
    header("deep nesting in an entry of " + open, R"({"a":{"dtype":)" + deep);
    header("deep nesting in a shape of " + open, R"({"a":{"shape":[)" + deep);
    header("deep nesting in metadata of " + open, R"({"__metadata__":{"a":)" + deep);
  }
  header("a million tiny entries", tiny_entries(1'000'000, ""));
  header("as many entries as are allowed", tiny_entries(1'536, ""), true);
  header("a name of 20 MB", "{\"" + std::string(20'000'000, 'n') + "\":{}}");
  header("a name of escapes", "{\"" + std::string(20'000'000, '\\') + "\":{}}");
  header("a dtype of 20 MB", R"({"a":{"dtype":")" + std::string(20'000'000, 'F') + "\"}}");
  header("a key of 20 MB in an entry", "{\"a\":{\"" + std::string(20'000'000, 'F') + "\":1}}");
  header("a number of 20 MB", R"({"a":{"dtype":"U8","shape":[)" + std::string(20'000'000, '0') + "]}}");
  header("a text of 50 MB that does not end", R"({"__metadata__":{"a":")" + std::string(50'000'000, 'x'));
  header("a text of 50 MB", R"({"__metadata__":{"a":")" + std::string(50'000'000, 'x') + "\"}}", true);
  std::string escapes;
  for (int i = 0; i < 4'000'000; ++i) escapes += "\\u20ac";
  header("a text of escapes", R"({"__metadata__":{"a":")" + escapes + "\"}}", true);
  std::string texts = "{\"__metadata__\":{";
  for (int i = 0; i < 2'000'000; ++i) texts += "\"" + std::to_string(i) + "\":\"\",";
  texts.back() = '}';
  header("two million texts", texts + "}");
  std::string fewer = "{\"__metadata__\":{";
  for (int i = 0; i < 2'048; ++i) fewer += "\"" + std::to_string(i) + "\":\"\",";
  fewer.back() = '}';
  header("as many texts and entries as are allowed", fewer + "," + tiny_entries(1'536, "").substr(1), true);
  header("99 MB of spaces", "{}" + std::string(99'000'000, ' '), true);
  std::string real = tiny_entries(1'400, R"("data":{"dtype":"U8","shape":[10000000],"data_offsets":[0,10000000]})");
  all.push_back({"a tensor of 10 MB among small ones", raw_safetensors(real, std::string(10'000'000, 'x')), true});
  return all;
}

TEST(SafetensorsHostile, MemoryStaysWithinTheFileAndOneMegabyte) {
  // LibTorch's one-time setup is not caused by the file.
  read_safetensors(small_model(), "warm-up");
  const test::TemporaryFolder folder;
  for (const Attack& attack : attacks()) {
    const auto size = static_cast<int64_t>(attack.bytes.size());
    write_plainly(folder / "file", attack.bytes);
    for (const bool from_disk : {false, true}) {
      bool valid = true;
      const auto start = std::chrono::steady_clock::now();
      const test::MemoryMeter meter;
      try {
        from_disk ? read_safetensors(folder / "file") : read_safetensors(attack.bytes, "memory");
      } catch (const base::InputError& error) {
        valid = false;
        EXPECT_LT(std::string(error.what()).size(), 700U) << attack.what;
      }
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_EQ(valid, attack.valid) << attack.what;
      EXPECT_LE(meter.peak(), size + kMegabyte) << attack.what;
      EXPECT_LE(meter.largest(), size + kMegabyte) << attack.what;
      EXPECT_LT(seconds.count(), 20.0) << attack.what;
    }
  }
}

// The meter must see what it should limit.
TEST(SafetensorsHostile, TheMeterCounts) {
  const test::MemoryMeter meter;
  const std::string text(3'000'000, 'x');
  EXPECT_GE(meter.peak(), 3'000'000);
  const at::Tensor tensor = at::ones({1'000'000}, at::kFloat);
  EXPECT_GE(meter.largest(), 4'000'000);
  EXPECT_GE(meter.peak(), 7'000'000);
  EXPECT_EQ(text.size() + static_cast<size_t>(tensor.numel()), 4'000'000U);
}

}  // namespace
}  // namespace mnemo::weights
