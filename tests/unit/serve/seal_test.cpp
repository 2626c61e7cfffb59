#include "serve/seal.h"

#include <gtest/gtest.h>

#include <string>

namespace mnemo::serve {
namespace {

TEST(Seal, IsSipHash) {
  // Appendix A of the paper: the key 00 01 .. 0f, the bytes 00 01 .. 0e.
  const Seal seal(0x0706050403020100, 0x0f0e0d0c0b0a0908);
  std::string bytes;
  for (char i = 0; i < 15; ++i) bytes += i;
  EXPECT_EQ(seal(bytes), 0xa129ca6149be45e5);
}

TEST(Seal, DependsOnEachByteAndOnTheKey) {
  const Seal seal, other;
  const std::string bytes(41, 'a');
  EXPECT_EQ(seal(bytes), seal(bytes));
  EXPECT_NE(seal(bytes), other(bytes));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = 'b';
    EXPECT_NE(seal(changed), seal(bytes)) << i;
    EXPECT_NE(seal(bytes.substr(0, i)), seal(bytes)) << i;
  }
}

}  // namespace
}  // namespace mnemo::serve
