#include "train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/file_io.h"
#include "base/machine.h"

namespace mnemo::train {
namespace {

// Protocol buffers, as far as they are needed: a key is number << 3 | type; varints, 64 bits, bytes and 32 bits have
// types 0, 1, 2, 5.

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_little_endian(std::string& out, T bits) {
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(bits >> (8 * i));
}

void put_integer(std::string& out, int number, int64_t value) {
  put_varint(out, static_cast<uint64_t>(number) << 3);
  put_varint(out, static_cast<uint64_t>(value));
}

void put_double(std::string& out, int number, double value) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | 1);
  put_little_endian(out, std::bit_cast<uint64_t>(value));
}

void put_float(std::string& out, int number, float value) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | 5);
  put_little_endian(out, std::bit_cast<uint32_t>(value));
}

void put_bytes(std::string& out, int number, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// Fields of tensorflow.Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7; of Summary:
// value = 1; of Summary.Value: tag = 1, simple_value = 2; of SessionLog: status = 1, START = 1.
std::string new_event(int64_t step) {
  std::string event;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  put_double(event, 1, std::chrono::duration<double>(now).count());
  if (step != 0) put_integer(event, 2, step);
  return event;
}

uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return (crc >> 15 | crc << 17) + 0xa282ead8U;
}

/// This machine's name, as part of a file's.
std::string name_part() {
  std::string name = base::host_name();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

}  // namespace

uint32_t crc32c(std::string_view data) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78U : 0U);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0U;
  for (const char c : data) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

TensorBoard::TensorBoard(const std::string& folder, int64_t start_step) {
  static std::atomic<int> files = 0;
  base::make_folders(folder);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  path_ = base::join_path(
      folder, fmt::format("events.out.tfevents.{}.{}.{}.{}", seconds.count(), name_part(), ::getpid(), files++));
  file_ = std::fopen(path_.c_str(), "wbx");
  base::require(file_ != nullptr, "{}: cannot be made: {}", path_, std::strerror(errno));
  std::string event = new_event(0);
  put_bytes(event, 3, "brain.Event:2");
  write_event(event);
  // TensorBoard forgets points at the step of such an event as well; the one at start_step stays.
  event = new_event(start_step + 1);
  std::string session;
  put_integer(session, 1, 1);
  put_bytes(event, 7, session);
  write_event(event);
}

TensorBoard::~TensorBoard() { std::fclose(file_); }

void TensorBoard::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    std::string entry;
    put_bytes(entry, 1, tag);
    put_float(entry, 2, static_cast<float>(value));
    put_bytes(summary, 1, entry);
  }
  std::string event = new_event(step);
  put_bytes(event, 5, summary);
  write_event(event);
}

void TensorBoard::write_event(std::string_view event) {
  std::string length;
  put_little_endian(length, static_cast<uint64_t>(event.size()));
  std::string record = length;
  put_little_endian(record, masked_crc(length));
  record += event;
  put_little_endian(record, masked_crc(event));
  const bool written = std::fwrite(record.data(), 1, record.size(), file_) == record.size() && std::fflush(file_) == 0;
  if (!written) base::system_failure(path_, "cannot be written", errno);
}

}  // namespace mnemo::train
