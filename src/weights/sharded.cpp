#include "weights/sharded.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_sax.h"
#include "base/node.h"
#include "base/printable.h"
#include "weights/map_safetensors.h"
#include "weights/safetensors_header.h"

namespace mnemo::weights {
namespace {

constexpr size_t kMaxFiles = 4096, kMaxBytes = size_t{16} << 20;

/// Reads an index value by value, so that it takes no more memory than the tensors that its files can hold.
class IndexReader final : public base::JsonSax {
 public:
  /// The tensors of each file, by file.
  using Files = std::map<std::string, std::set<std::string>>;

  IndexReader(const std::string& index, const std::string& folder)
      : JsonSax(base::printable(index, 400)), folder_(folder) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t v) override { return value(fmt::format("integer {}", v)); }
  bool number_unsigned(number_unsigned_t v) override { return value(fmt::format("integer {}", v)); }
  bool number_float(number_float_t v, const string_t&) override { return value(fmt::format("number {}", v)); }

  bool string(string_t& file) override {
    if (!in_map_ || depth_ != 2 || !base::is_plain_name(file)) return value("string " + base::in_quotes(file));
    const auto [entry, is_new] = files_.try_emplace(file);
    base::require(files_.size() <= kMaxFiles, "{}: 'weight_map': expected at most {} files, found more", where_,
                  kMaxFiles);
    if (is_new) {
      std::error_code failed;
      const uint64_t bytes = std::filesystem::file_size(base::join_path(folder_, file), failed);
      most_ += affordable_tensors(failed ? 0 : bytes);
    }
    base::require(++tensors_ <= most_,
                  "{}: 'weight_map': expected at most {} tensors, as its files can hold, found more", where_, most_);
    if (!entry->second.insert(key_).second) twice(key_);
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      base::require(!in_map_ || tensors_ == 0, "{}: the key 'weight_map' appears twice", where_);
    } else if (in_map_) {
      key_ = std::move(name);
    }
    return true;
  }
  bool start_object(size_t) override { return depth_ == 0 || (in_map_ && depth_ == 1) ? deeper() : open("a table"); }
  bool start_array(size_t) override { return depth_ == 0 ? value("an array") : open("an array"); }
  bool end_object() override { return depth_-- > 0; }
  bool end_array() override { return depth_-- > 0; }

  Files take() {
    if (tensors_ == 0) none();
    std::vector<std::string_view> all;
    for (const auto& [file, tensors] : files_) all.insert(all.end(), tensors.begin(), tensors.end());
    std::ranges::sort(all);
    if (const auto same = std::ranges::adjacent_find(all); same != all.end()) twice(*same);
    return std::move(files_);
  }

 private:
  [[noreturn]] void twice(std::string_view tensor) const {
    base::input_error("{}: 'weight_map': the tensor '{}' appears twice", where_, base::printable(tensor));
  }
  [[noreturn]] void none() const {
    base::input_error("{}: expected an object \"weight_map\" of tensors and their files, found none", where_);
  }
  bool deeper() {
    ++depth_;
    return true;
  }
  bool open(const std::string& found) { return value(found) && deeper(); }

  /// Anything but a file's name in its place.
  bool value(const std::string& found) {
    if (depth_ == 0 || (in_map_ && depth_ == 1)) none();
    base::require(!in_map_, "{}: 'weight_map': '{}': expected the name of a file in the same folder, found {}", where_,
                  base::printable(key_), found);
    return true;
  }

  const std::string& folder_;
  Files files_;
  std::string key_;
  uint64_t tensors_ = 0, most_ = 0;
  uint64_t depth_ = 0;
  bool in_map_ = false;  // the value of weight_map
};

}  // namespace

namespace {

TensorFile read_all(const std::string& index, const std::function<TensorFile(const std::string& path)>& read) {
  const size_t slash = index.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : index.substr(0, slash);
  IndexReader reader(index, folder);
  {
    const std::string text = base::read_file(index, kMaxBytes);
    nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  }
  const IndexReader::Files files = reader.take();
  for (const auto& [name, listed] : files)
    base::require(base::path_exists(base::join_path(folder, name)), "{}: 'weight_map': the file '{}' is missing",
                  base::printable(index, 400), base::printable(name));
  TensorFile all;
  for (const auto& [name, listed] : files) {
    const std::string path = base::join_path(folder, name);
    TensorFile shard = read(path);
    std::set<std::string> found;
    for (auto& [tensor, value] : shard.tensors) {
      base::require(listed.contains(tensor), "{}: holds a tensor '{}' that {} does not list for it",
                    base::printable(path, 400), base::printable(tensor), kIndexFile);
      found.insert(tensor);
      all.tensors.emplace_back(tensor, std::move(value));
    }
    for (const std::string& tensor : listed)
      base::require(found.contains(tensor), "{}: has no tensor '{}', which {} expects there",
                    base::printable(path, 400), base::printable(tensor), kIndexFile);
    all.metadata.insert(shard.metadata.begin(), shard.metadata.end());
  }
  return all;
}

}  // namespace

TensorFile read_sharded(const std::string& index, const ReadOptions& options) {
  return read_all(index, [&](const std::string& path) { return read_safetensors(path, options); });
}

TensorFile map_sharded(const std::string& index) { return read_all(index, map_safetensors); }

}  // namespace mnemo::weights
