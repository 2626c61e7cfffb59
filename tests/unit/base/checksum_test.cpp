#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file_io.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::base {
namespace {

// Examples from FIPS 180-4.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesMakeNoDifference) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t length = 0; length < text.size(); ++length) {
    for (const size_t piece : {1, 63, 64, 65}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.update(text.substr(at, std::min(piece, length - at)));
      ASSERT_EQ(hash.hex(), sha256(text.substr(0, length))) << length << " bytes in pieces of " << piece;
    }
  }
}

TEST(Sha256, OfAFile) {
  const test::TemporaryFolder folder;
  const std::string content(3'000'000, 'x');
  write_file_atomic(folder / "f", content);
  EXPECT_EQ(sha256_file(folder / "f"), sha256(content));
  write_file_atomic(folder / "empty", "");
  EXPECT_EQ(sha256_file(folder / "empty"), sha256(""));
}

}  // namespace
}  // namespace mnemo::base
