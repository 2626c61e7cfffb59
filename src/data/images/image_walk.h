#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace mnemo::data {

/// Finds the image files below a folder, each folder once however many links lead to it: a loop of links ends, and no
/// image belongs to two classes.
class ImageWalk {
 public:
  /// follow_links: also enter folders and read files that symbolic links name outside of `root`; otherwise such a link
  /// is an error. Links to folders inside of it add nothing: their images are found where they are.
  ImageWalk(std::string root, bool follow_links);

  /// Files below `root`/`folder` with the extension of an image, at any depth, sorted, as paths relative to `root`, of
  /// folders not seen before. Unsupported image formats are included; reading them is an error instead of being
  /// ignored. Throws InputError for a folder that cannot be listed and for a link that may not be followed.
  std::vector<std::string> below(const std::string& folder);

 private:
  void enter(const std::string& relative, std::vector<std::string>& found);
  void visit(const std::string& relative, std::vector<std::string>& found);
  bool leaves(const std::string& target) const;

  std::string root_, canonical_;
  bool follow_links_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace mnemo::data
