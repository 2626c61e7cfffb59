#include "weights/sharded.h"

#include <map>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"

namespace mnemo::weights {
namespace {

constexpr size_t kMaxFiles = 4096;

/// The tensors of each file, by file.
std::map<std::string, std::set<std::string>> weight_map(const std::string& index) {
  base::ReadLimits limits;
  limits.max_bytes = size_t{16} << 20;
  limits.max_values = int64_t{1} << 18;
  const base::Node read = base::parse_json(base::read_file(index, limits.max_bytes), index, limits);
  const base::Node* map = read.is_table() ? read.find("weight_map") : nullptr;
  base::require(map != nullptr && map->is_table() && map->size() > 0,
                "{}: expected an object \"weight_map\" of tensors and their files, found none",
                base::printable(index, 400));
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : map->members()) {
    base::require(file.is_string() && base::is_plain_name(file.as_string()),
                  "{}: 'weight_map': '{}': expected the name of a file in the same folder, found {}",
                  base::printable(index, 400), base::printable(tensor), file.found());
    files[file.as_string()].insert(tensor);
    base::require(files.size() <= kMaxFiles, "{}: 'weight_map': expected at most {} files, found more",
                  base::printable(index, 400), kMaxFiles);
  }
  return files;
}

}  // namespace

TensorFile read_sharded(const std::string& index, const ReadOptions& options) {
  const size_t slash = index.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : index.substr(0, slash);
  const std::map<std::string, std::set<std::string>> files = weight_map(index);
  for (const auto& [name, listed] : files)
    base::require(base::path_exists(base::join_path(folder, name)), "{}: 'weight_map': the file '{}' is missing",
                  base::printable(index, 400), base::printable(name));
  TensorFile all;
  for (const auto& [name, listed] : files) {
    const std::string path = base::join_path(folder, name);
    TensorFile shard = read_safetensors(path, options);
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

}  // namespace mnemo::weights
