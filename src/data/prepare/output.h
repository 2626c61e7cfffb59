#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_folder.h"
#include "base/options.h"
#include "data/prepare/data_set.h"
#include "text/text_source.h"

namespace mnemo::data {

inline constexpr std::array<const char*, 3> kParts = {"train", "valid", "test"};
inline constexpr std::array<const char*, 3> kTextFiles = {"train.txt", "valid.txt", "test.txt"};

/// The output folder of a data set, written atomically: on failure, and where it is stopped, the previous content
/// remains.
class Output {
 public:
  /// `files`: names for train, valid and test, or none. Throws InputError if an unrelated folder would be replaced.
  Output(const PrepareTarget& out, std::span<const char* const> files);

  /// Where part `i` is written.
  std::string file(size_t i) const { return folder_.file(files_[i]); }
  std::string path(size_t i) const;

  /// Copies a text to part `i`.
  void copy(const text::TextSource& from, size_t i) const;
  /// For loops that write: throws base::Stopped once it is asked for.
  void require_going_on() const;

  /// Writes the [data] table of the parts, with paths relative to its own folder, and moves everything into place.
  /// Returns the path of data.toml.
  std::string commit(std::string_view about, std::string_view keys, const std::vector<PreparedPart>& parts);

 private:
  std::string out_;
  base::ShouldStop should_stop_;
  std::vector<std::string> files_;
  std::shared_ptr<void> guard_;
  base::AtomicFolder folder_;
};

/// The keys of a [data] table that differ from those of another, as lines of data.toml, but for `left_out`.
std::string changed_keys(const base::Node& keys, const base::Node& usual,
                         std::initializer_list<std::string_view> left_out);
/// The keys of options that differ from their defaults.
template <class O>
std::string changed_keys(const O& options, std::initializer_list<std::string_view> left_out) {
  return changed_keys(base::write_options(options), base::write_options(O()), left_out);
}

/// The first of these names that exists in the folder. Throws InputError saying which data set is expected and where to
/// download it.
std::string find_file(const std::string& folder, const std::vector<std::string>& names, std::string_view data_set,
                      std::string_view from);

}  // namespace mnemo::data
