#include "data/prepare/images.h"

#include <fmt/format.h>

#include <filesystem>

#include "data/images/image_describe.h"
#include "data/images/image_set.h"
#include "data/prepare/output.h"

namespace mnemo::data {
namespace {

Prepared prepare_images(const std::string& folder, const PrepareTarget& out, const base::Node&) {
  const ImageOptions options = detect_images(folder);
  load_images(options);
  std::string keys = fmt::format("type = \"images\"\nformat = \"{}\"\n", options.format_name());
  for (const auto& [key, path] :
       {std::pair("train", &options.train), std::pair("valid", &options.valid), std::pair("test", &options.test)}) {
    if (!path->empty())
      keys += fmt::format("{} = {}\n", key,
                          base::to_json(base::Node(std::filesystem::absolute(*path).lexically_normal().string()), -1));
  }
  if (options.valid_fraction > 0) keys += fmt::format("valid_fraction = {:g}\n", options.valid_fraction);
  const std::string name = std::filesystem::path(folder).filename().string();
  return {Output(out, {}).commit("images of " + name, keys, {})};
}

}  // namespace

DataSet image_folder() {
  return {.what = "images in class folders, MNIST or CIFAR files, or another supported layout",
          .from = "your own files",
          .prepare = prepare_images};
}

}  // namespace mnemo::data
