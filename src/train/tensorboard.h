#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnemo::train {

/// Writes a TensorBoard event file: a TFRecord of Event messages with scalar summaries.
///   record = length u64, masked crc32c(length), data, masked crc32c(data), little-endian
/// Every event is flushed, so a killed run leaves at most one incomplete record at the end, which TensorBoard ignores.
class TensorBoard {
 public:
  /// Creates a new file in `folder`, events.out.tfevents.SECONDS.HOST.PID.N. `start_step` above 0 tells TensorBoard to
  /// discard later steps from earlier files of the folder (for a resumed run). Throws InputError that names the path.
  explicit TensorBoard(const std::string& folder, int64_t start_step = 0);
  ~TensorBoard();
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;

  /// Writes the scalars of one step with their tags ("train/loss"). Throws InputError if the disk is full.
  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);

  const std::string& path() const { return path_; }

 private:
  void write_event(std::string_view event);

  std::string path_;
  std::FILE* file_ = nullptr;
};

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `data`.
uint32_t crc32c(std::string_view data);

}  // namespace mnemo::train
