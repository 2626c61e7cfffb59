#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_folder.h"
#include "data/prepare/data_set.h"
#include "data/text/text_source.h"

namespace mnemo::data {

inline constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};
inline constexpr std::array<const char*, 3> kTextFiles = {"train.txt", "valid.txt", "test.txt"};

/// The output folder of a data set, written atomically: on failure the previous content remains.
class Output {
 public:
  /// `files`: names for train, valid and test. Throws InputError if an unrelated folder would be replaced.
  Output(const std::string& out, const std::array<const char*, 3>& files);

  /// Where part `i` is written.
  std::string file(size_t i) const { return folder_.file(files_[i]); }
  std::string path(size_t i) const;

  /// Writes the [data] table of the parts, with paths relative to its own folder, and moves everything into place.
  /// Returns the path of data.toml.
  std::string commit(std::string_view about, std::string_view keys, const std::vector<PreparedPart>& parts);

 private:
  std::string out_;
  std::array<const char*, 3> files_;
  base::AtomicFolder folder_;
};

void copy_text(const TextSource& from, const std::string& to);

/// The first of these names that exists in the folder. Throws InputError saying which data set is expected and where to
/// download it.
std::string find_file(const std::string& folder, const std::vector<std::string>& names, std::string_view data_set,
                      std::string_view from);

}  // namespace mnemo::data
