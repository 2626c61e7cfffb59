#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image_set.h"

namespace mnemo::data {

/// Class names, numbered in the order they are added.
class ClassNames {
 public:
  int32_t add(const std::string& name) {
    const auto [at, fresh] = numbers_.try_emplace(name, static_cast<int32_t>(names_.size()));
    if (fresh) names_.push_back(name);
    return at->second;
  }
  /// Throws InputError "WHERE: ..." for a class that was not added.
  int32_t find(const std::string& name, const std::string& where) const;
  const std::vector<std::string>& names() const { return names_; }
  bool empty() const { return names_.empty(); }

 private:
  std::map<std::string, int32_t> numbers_;
  std::vector<std::string> names_;
};

/// A part of a data set: a source and its labels.
struct FoundImages {
  std::shared_ptr<const ImageSource> source;
  std::vector<int32_t> labels;
};
struct FoundSet {
  ClassNames classes;
  FoundImages train;
  std::optional<FoundImages> valid, test;
};

/// Data sets in files of raw images: idx, cifar10, cifar100.
FoundSet find_idx(const ImageOptions& options);
FoundSet find_cifar(const ImageOptions& options);
/// Data sets of image files: folders, csv, imagenet, inaturalist, places365, sun397.
FoundSet find_folders(const ImageOptions& options);
FoundSet find_csv(const ImageOptions& options);
FoundSet find_imagenet(const ImageOptions& options);
FoundSet find_inaturalist(const ImageOptions& options);
FoundSet find_places365(const ImageOptions& options);
FoundSet find_sun397(const ImageOptions& options);

}  // namespace mnemo::data
