#include "data/images/image_walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file_io.h"

namespace mnemo::data {
namespace {

namespace fs = std::filesystem;

/// Includes unsupported image formats: reading them is an error instead of silently skipping them.
bool is_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 13> kEndings = {"jpg",  "jpeg", "jpe",  "jfif", "png", "gif", "bmp",
                                                         "webp", "tif",  "tiff", "ppm",  "pgm", "avif"};
  const size_t dot = name.rfind('.');
  if (name.starts_with('.') || dot == std::string_view::npos) return false;
  return std::find(kEndings.begin(), kEndings.end(), base::lower_case(name.substr(dot + 1))) != kEndings.end();
}

}  // namespace

ImageWalk::ImageWalk(std::string root, bool follow_links) : root_(std::move(root)), follow_links_(follow_links) {
  std::error_code error;
  canonical_ = fs::canonical(root_, error).string();
  if (error) base::system_failure(root_, "cannot list the directory", error.value());
}

std::vector<std::string> ImageWalk::below(const std::string& folder) {
  std::vector<std::string> found;
  folder.empty() ? enter("", found) : visit(folder, found);
  std::sort(found.begin(), found.end());
  return found;
}

bool ImageWalk::leaves(const std::string& target) const {
  return target != canonical_ && !target.starts_with(canonical_ == "/" ? canonical_ : canonical_ + "/");
}

void ImageWalk::enter(const std::string& relative, std::vector<std::string>& found) {
  const std::string path = relative.empty() ? root_ : base::join_path(root_, relative);
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) base::system_failure(path, "cannot list the directory", errno);
  if (!seen_.emplace(facts.st_dev, facts.st_ino).second) return;
  for (const std::string& name : base::list_folder(path))
    visit(relative.empty() ? name : base::join_path(relative, name), found);
}

void ImageWalk::visit(const std::string& relative, std::vector<std::string>& found) {
  const fs::path path = fs::path(root_) / relative;
  std::error_code error;
  const bool link = fs::is_symlink(path, error), folder = fs::is_directory(path, error);
  if (!folder && !is_image_name(path.filename().string())) return;
  struct stat facts {};
  if (!folder && ::stat(path.c_str(), &facts) != 0) return found.push_back(relative);  // broken where it is read
  if (!folder && !S_ISREG(facts.st_mode)) return;
  if (link) {
    const std::string target = fs::canonical(path, error).string();
    const bool outside = leaves(target);
    base::require(!outside || follow_links_,
                  "{}: a link to {}, outside of {}; expected images inside of it, or data.follow_links = true",
                  path.string(), target, root_);
    if (folder && !outside) return;
  }
  folder ? enter(relative, found) : found.push_back(relative);
}

}  // namespace mnemo::data
