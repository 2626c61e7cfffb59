#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/node.h"

namespace mnemo::base {
namespace {

/// Reads at most `limit` bytes in chunks, so that pipes work and an endless file ends.
std::string read_limited(const std::string& name, size_t limit) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "rb"), std::fclose);
  require(file != nullptr || errno != ENOENT, "{}: no such file", name);
  require(file != nullptr, "cannot read {}: {}", name, std::strerror(errno));
  std::string text;
  char piece[16384];
  while (true) {
    const size_t count = std::fread(piece, 1, sizeof piece, file.get());
    if (count == 0) break;
    text.append(piece, count);
    require(text.size() <= limit, "{}: larger than {} bytes, the limit for configuration files", name, limit);
  }
  require(std::ferror(file.get()) == 0, "cannot read {}: {}", name, std::strerror(errno));
  return text;
}

}  // namespace

Node read_config_file(const std::filesystem::path& path, const ReadLimits& limits) {
  const std::string name = path.string();
  const std::string extension = path.extension().string();
  require(extension == ".toml" || extension == ".json", "{}: expected a .toml or .json file", name);
  const std::string text = read_limited(name, limits.max_bytes);
  Node node = extension == ".toml" ? parse_toml(text, name, limits) : parse_json(text, name, limits);
  require(node.is_table(), "{}: expected a table ({{ … }}), found {}", name, node.found());
  return node;
}

}  // namespace mnemo::base
