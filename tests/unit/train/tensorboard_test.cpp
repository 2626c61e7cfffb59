#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>

#include "base/file_io.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::train {
namespace {

/// CRC-32C bit by bit, from the definition.
uint32_t slow_crc(std::string_view data) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 == 1 ? crc / 2 ^ 0x82F63B78 : crc / 2;
  }
  return ~crc;
}

uint32_t masked(std::string_view data) {
  const uint32_t crc = slow_crc(data);
  return std::rotr(crc, 15) + 0xa282ead8;
}

template <class T>
T take(std::string_view& bytes) {
  T value{};
  if (bytes.size() < sizeof(T)) throw std::runtime_error("cut short");
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

/// The data of every record, after checking its checksums.
std::vector<std::string> records(std::string_view file) {
  std::vector<std::string> found;
  while (!file.empty()) {
    const std::string_view head = file.substr(0, 8);
    const auto length = take<uint64_t>(file);
    EXPECT_EQ(take<uint32_t>(file), masked(head));
    found.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(file), masked(found.back()));
  }
  return found;
}

/// A message's fields by number: integers as such, everything else as bytes.
struct Message {
  std::multimap<uint64_t, uint64_t> integers;
  std::multimap<uint64_t, std::string> bytes;

  explicit Message(std::string_view data) {
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint64_t>(take<unsigned char>(data));
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (!data.empty()) {
      const uint64_t key = varint();
      if (key % 8 == 0) {
        integers.emplace(key / 8, varint());
        continue;
      }
      const uint64_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
      bytes.emplace(key / 8, data.substr(0, size));
      data.remove_prefix(size);
    }
  }
  std::string one(uint64_t number) const {
    EXPECT_EQ(bytes.count(number), 1U);
    return bytes.count(number) == 1 ? bytes.find(number)->second : std::string();
  }
};

TEST(TensorBoard, ChecksumIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);  // RFC 3720's check value
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
}

TEST(TensorBoard, EventsAreReadBack) {
  const test::TemporaryFolder folder;
  std::string path;
  {
    TensorBoard board(folder.path(), 40);
    path = board.path();
    board.scalars(41, {{"train/loss", 2.5}, {"train/lr", 0.001}});
    board.scalars(300, {{"valid/nll", -1.0}});
  }
  EXPECT_NE(path.find("/events.out.tfevents."), std::string::npos);
  const auto events = records(base::read_file(path));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(Message(events[0]).one(3), "brain.Event:2");
  const Message start(events[1]);
  EXPECT_EQ(start.integers.find(2)->second, 41U);  // values at 40 and before are kept
  EXPECT_EQ(Message(start.one(7)).integers.find(1)->second, 1U);

  const Message first(events[2]);
  EXPECT_EQ(first.integers.find(2)->second, 41U);
  double seconds = 0;
  std::memcpy(&seconds, first.one(1).data(), 8);
  EXPECT_GT(seconds, 1.6e9);
  const Message summary(first.one(5));
  std::map<std::string, float> values;
  for (const auto& [number, bytes] : summary.bytes) {
    EXPECT_EQ(number, 1U);
    const Message value(bytes);
    float number_read = 0;
    std::memcpy(&number_read, value.one(2).data(), 4);
    values[value.one(1)] = number_read;
  }
  EXPECT_EQ(values, (std::map<std::string, float>{{"train/loss", 2.5F}, {"train/lr", 0.001F}}));
  EXPECT_EQ(Message(events[3]).integers.find(2)->second, 300U);
}

// A training that was killed before its first checkpoint begins again: its first points are forgotten.
TEST(TensorBoard, AnotherBeginningForgetsTheFirst) {
  const test::TemporaryFolder folder;
  const auto events = records(base::read_file(TensorBoard(folder.path()).path()));
  ASSERT_EQ(events.size(), 2U);
  const Message start(events[1]);
  EXPECT_EQ(start.integers.find(2)->second, 1U);
  EXPECT_EQ(Message(start.one(7)).integers.find(1)->second, 1U);
}

}  // namespace
}  // namespace mnemo::train
