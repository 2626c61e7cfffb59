#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/image.h"
#include "data/images/image_options.h"
#include "data/images/image_reader.h"
#include "data/part.h"

namespace mnemo::data {

/// Images that can be read one by one, from any thread.
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  virtual int64_t size() const = 0;
  /// Throws InputError that names name(i) if it cannot be read.
  virtual std::shared_ptr<const Image> read(int64_t i) const = 0;
  /// A path, or a file name and index.
  virtual std::string name(int64_t i) const = 0;
  virtual ImageHeader header(int64_t i) const = 0;
};

/// Many paths below a folder, stored contiguously.
class PathList {
 public:
  void add(std::string_view path) {
    text_ += path;
    ends_.push_back(text_.size());
  }
  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  std::string_view operator[](int64_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[static_cast<size_t>(i - 1)];
    return std::string_view(text_).substr(begin, ends_[static_cast<size_t>(i)] - begin);
  }

 private:
  std::string text_;
  std::vector<uint64_t> ends_;
};

/// Files `root`/`paths[i]`.
std::shared_ptr<const ImageSource> file_images(std::string root, PathList paths);
/// Raw images of one size, stored consecutively in a file: bytes [N,H,W,C], or planes [N,C,H,W]; C is 1 or 3.
struct RawImages {
  std::string file;
  std::vector<uint8_t> bytes;
  int64_t height = 0, width = 0, channels = 1;
  bool planes = false;
};
std::shared_ptr<const ImageSource> raw_images(RawImages images);
/// A cache in front of a source: the first decoded images stay in memory, up to `bytes` in total.
std::shared_ptr<const ImageSource> keep_decoded(std::shared_ptr<const ImageSource> source, int64_t bytes);

/// Images with one class each: rows of a source.
class ImageSet {
 public:
  ImageSet(std::shared_ptr<const ImageSource> source, std::vector<int32_t> labels,
           std::shared_ptr<const std::vector<std::string>> classes);

  int64_t size() const { return static_cast<int64_t>(rows_.size()); }
  int64_t label(int64_t i) const { return labels_[static_cast<size_t>(rows_[static_cast<size_t>(i)])]; }
  int64_t num_classes() const { return static_cast<int64_t>(classes_->size()); }
  const std::vector<std::string>& classes() const { return *classes_; }
  std::shared_ptr<const Image> read(int64_t i) const { return source_->read(rows_[static_cast<size_t>(i)]); }
  std::string name(int64_t i) const { return source_->name(rows_[static_cast<size_t>(i)]); }
  ImageHeader header(int64_t i) const { return source_->header(rows_[static_cast<size_t>(i)]); }
  /// A hash of names and labels, in order.
  uint64_t fingerprint() const;

  /// Some of the images.
  ImageSet subset(std::vector<int32_t> rows) const;
  ImageSet with_source(std::shared_ptr<const ImageSource> source) const;
  /// This set with other class indices: class c becomes numbers[c] of `classes`.
  ImageSet with_classes(const std::vector<int32_t>& numbers,
                        std::shared_ptr<const std::vector<std::string>> classes) const;
  const std::shared_ptr<const ImageSource>& source() const { return source_; }

 private:
  std::shared_ptr<const ImageSource> source_;
  std::vector<int32_t> labels_, rows_;
  std::shared_ptr<const std::vector<std::string>> classes_;
};

/// The parts of a data set; a missing part is null. All have the same classes.
struct ImageSets {
  std::shared_ptr<const ImageSet> train, valid, test;

  const std::shared_ptr<const ImageSet>& part(Part part) const {
    return part == Part::train ? train : part == Part::valid ? valid : test;
  }
};

/// Finds the images described by the options, and reads those stored in one file. Throws InputError that names what is
/// missing and where.
ImageSets load_images(const ImageOptions& options);

}  // namespace mnemo::data
