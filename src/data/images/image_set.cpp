#include "data/images/image_set.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/random.h"
#include "base/text_format.h"
#include "data/images/image_layout.h"

namespace mnemo::data {
namespace {

class FileImages final : public ImageSource {
 public:
  FileImages(std::string root, PathList paths) : root_(std::move(root)), paths_(std::move(paths)) {}
  int64_t size() const override { return paths_.size(); }
  std::shared_ptr<const Image> read(int64_t i) const override {
    return std::make_shared<const Image>(read_image(name(i)));
  }
  std::string name(int64_t i) const override { return base::join_path(root_, std::string(paths_[i])); }
  ImageHeader header(int64_t i) const override { return read_image_header(name(i)); }

 private:
  std::string root_;
  PathList paths_;
};

class RawImageFile final : public ImageSource {
 public:
  explicit RawImageFile(RawImages images) : images_(std::move(images)) {}
  int64_t size() const override { return static_cast<int64_t>(images_.bytes.size()) / bytes_each(); }
  std::shared_ptr<const Image> read(int64_t i) const override {
    auto image = std::make_shared<Image>(images_.height, images_.width);
    const int64_t pixels = images_.height * images_.width, channels = images_.channels;
    const uint8_t* from = images_.bytes.data() + i * bytes_each();
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t channel = std::min(c, channels - 1);
        image->bytes[static_cast<size_t>(p * 3 + c)] = from[images_.planes ? channel * pixels + p
                                                                           : p * channels + channel];
      }
    }
    return image;
  }
  std::string name(int64_t i) const override { return fmt::format("{}, image {}", images_.file, i); }
  ImageHeader header(int64_t) const override { return {"raw", images_.height, images_.width}; }

 private:
  int64_t bytes_each() const { return images_.height * images_.width * images_.channels; }
  RawImages images_;
};

/// Stores the bytes of images in blocks. Separate allocations would be scattered between the large temporary tensors of
/// training steps and keep their memory from being released: 160 MB of small images led to a process of 3.4 GB.
class KeptImages final : public ImageSource {
 public:
  KeptImages(std::shared_ptr<const ImageSource> source, int64_t bytes)
      : source_(std::move(source)), kept_(static_cast<size_t>(source_->size())), left_(bytes) {}
  int64_t size() const override { return source_->size(); }
  std::shared_ptr<const Image> read(int64_t i) const override {
    Kept& slot = kept_[static_cast<size_t>(i)];
    {
      const std::lock_guard lock(mutex_);
      if (slot.bytes != nullptr) return copy(slot);
    }
    auto image = source_->read(i);
    const std::lock_guard lock(mutex_);
    if (slot.bytes == nullptr) keep(*image, slot);
    return image;
  }
  std::string name(int64_t i) const override { return source_->name(i); }
  ImageHeader header(int64_t i) const override { return source_->header(i); }

 private:
  struct Kept {
    int64_t height = 0, width = 0;
    const uint8_t* bytes = nullptr;
  };
  static std::shared_ptr<const Image> copy(const Kept& kept) {
    auto image = std::make_shared<Image>(kept.height, kept.width);
    std::copy_n(kept.bytes, image->bytes.size(), image->bytes.data());
    return image;
  }
  void keep(const Image& image, Kept& slot) const {
    constexpr int64_t kBlock = 4 << 20;
    const auto size = static_cast<int64_t>(image.bytes.size());
    if (size > left_) return;
    if (size > room_) {
      room_ = std::max(size, std::min(kBlock, left_));
      blocks_.push_back(std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(room_)));
      next_ = blocks_.back().get();
    }
    std::copy_n(image.bytes.data(), size, next_);
    slot = {image.height, image.width, std::exchange(next_, next_ + size)};
    room_ -= size;
    left_ -= size;
  }

  std::shared_ptr<const ImageSource> source_;
  mutable std::mutex mutex_;
  mutable std::vector<Kept> kept_;
  mutable std::vector<std::unique_ptr<uint8_t[]>> blocks_;
  mutable uint8_t* next_ = nullptr;
  mutable int64_t room_ = 0, left_;
};

FoundSet find_images(const ImageOptions& options) {
  base::require(!options.train.empty(),
                "data: 'data.train': expected the path of an image set of format \"{}\", found none",
                options.format_name());
  using Format = ImageOptions::Format;
  switch (options.format) {
    case Format::folders:
      return find_folders(options);
    case Format::csv:
      return find_csv(options);
    case Format::idx:
      return find_idx(options);
    case Format::cifar10:
    case Format::cifar100:
      return find_cifar(options);
    case Format::imagenet:
      return find_imagenet(options);
    case Format::inaturalist:
      return find_inaturalist(options);
    case Format::places365:
      return find_places365(options);
    case Format::sun397:
      return find_sun397(options);
  }
  throw base::InternalError("image sets of an unknown format");
}

/// A random share of each class, drawn with the seed: rows of the test part, of the validation part, and the remaining
/// rows for training.
struct Split {
  std::vector<int32_t> train, valid, test;
};
Split split(const ImageSet& set, const ImageOptions& options) {
  std::vector<std::vector<int32_t>> by_class(static_cast<size_t>(set.num_classes()));
  for (int64_t i = 0; i < set.size(); ++i)
    by_class[static_cast<size_t>(set.label(i))].push_back(static_cast<int32_t>(i));
  Split parts;
  for (size_t c = 0; c < by_class.size(); ++c) {
    std::vector<int32_t>& rows = by_class[c];
    base::Random{static_cast<uint64_t>(options.split_seed), c}.shuffle(rows);
    const auto count = [&](double share) {
      return static_cast<std::ptrdiff_t>(std::llround(share * static_cast<double>(rows.size())));
    };
    const auto tests = count(options.test_fraction),
               valids = std::min(count(options.valid_fraction), static_cast<std::ptrdiff_t>(rows.size()) - tests);
    base::require(rows.empty() || tests + valids < std::ssize(rows),
                  "{}: no image of class {} is left for training: it has {}, of which data.test_fraction takes {} and "
                  "data.valid_fraction {}",
                  options.train, base::in_quotes(set.classes()[c]), base::counted(std::ssize(rows), "image"), tests,
                  valids);
    parts.test.insert(parts.test.end(), rows.begin(), rows.begin() + tests);
    parts.valid.insert(parts.valid.end(), rows.begin() + tests, rows.begin() + tests + valids);
    parts.train.insert(parts.train.end(), rows.begin() + tests + valids, rows.end());
  }
  // Sort in the set's own order, so that a part's order does not depend on the sizes of the others.
  for (auto* rows : {&parts.train, &parts.valid, &parts.test}) std::sort(rows->begin(), rows->end());
  return parts;
}

}  // namespace

std::shared_ptr<const ImageSource> file_images(std::string root, PathList paths) {
  return std::make_shared<FileImages>(std::move(root), std::move(paths));
}

std::shared_ptr<const ImageSource> raw_images(RawImages images) {
  const int64_t each = images.height * images.width * images.channels;
  base::ensure(each > 0 && static_cast<int64_t>(images.bytes.size()) % each == 0 &&
                   (images.channels == 1 || images.channels == 3),
               "{}: {} bytes of images [{},{},{}]", images.file, images.bytes.size(), images.height, images.width,
               images.channels);
  return std::make_shared<RawImageFile>(std::move(images));
}

std::shared_ptr<const ImageSource> keep_decoded(std::shared_ptr<const ImageSource> source, int64_t bytes) {
  return bytes == 0 ? source : std::make_shared<KeptImages>(std::move(source), bytes);
}

ImageSet::ImageSet(std::shared_ptr<const ImageSource> source, std::vector<int32_t> labels,
                   std::shared_ptr<const std::vector<std::string>> classes)
    : source_(std::move(source)), labels_(std::move(labels)), rows_(labels_.size()), classes_(std::move(classes)) {
  base::ensure(source_->size() == static_cast<int64_t>(labels_.size()), "{} images and {} labels", source_->size(),
               labels_.size());
  std::iota(rows_.begin(), rows_.end(), 0);
}

ImageSet ImageSet::subset(std::vector<int32_t> rows) const {
  ImageSet part = *this;
  for (int32_t& row : rows) row = rows_[static_cast<size_t>(row)];
  part.rows_ = std::move(rows);
  return part;
}

ImageSet ImageSet::with_source(std::shared_ptr<const ImageSource> source) const {
  ImageSet set = *this;
  set.source_ = std::move(source);
  return set;
}

ImageSet ImageSet::with_classes(const std::vector<int32_t>& numbers,
                                std::shared_ptr<const std::vector<std::string>> classes) const {
  ImageSet set = *this;
  for (int32_t& label : set.labels_) label = numbers.at(static_cast<size_t>(label));
  set.classes_ = std::move(classes);
  return set;
}

uint64_t ImageSet::fingerprint() const {
  base::Fingerprint sum;
  for (int64_t i = 0; i < size(); ++i) {
    // Only the file name: moving a set to another folder does not change it.
    const std::string path = name(i);
    for (size_t at = path.find_last_of('/') + 1; at < path.size(); ++at) sum.mix(static_cast<uint8_t>(path[at]));
    for (int64_t rest = label(i), byte = 0; byte < 4; ++byte, rest >>= 8) sum.mix(static_cast<uint8_t>(rest & 255));
  }
  return sum.value() ^ (sum.value() >> 29);
}

ImageSets load_images(const ImageOptions& options) {
  FoundSet found = find_images(options);
  const auto classes = std::make_shared<const std::vector<std::string>>(found.classes.names());
  const auto set_of = [&](FoundImages& part) {
    return ImageSet(std::move(part.source), std::move(part.labels), classes);
  };
  const int64_t kept = options.keep_decoded * 1'000'000;
  const auto is_raw = options.format == ImageOptions::Format::idx || options.format == ImageOptions::Format::cifar10 ||
                      options.format == ImageOptions::Format::cifar100;
  const auto finished = [&](ImageSet set) -> std::shared_ptr<const ImageSet> {
    return std::make_shared<ImageSet>(is_raw ? std::move(set) : set.with_source(keep_decoded(set.source(), kept)));
  };
  const ImageSet all = set_of(found.train);
  base::require(all.size() > 0, "{}: expected images, found none", options.train);
  // With a fraction for validation the set's own validation images are its test part: so are Places365 and iNaturalist
  // measured, whose test parts have no labels.
  if (options.valid_fraction > 0.0 && options.valid.empty() && !found.test) std::swap(found.valid, found.test);
  const auto check_free = [&](const char* part, double fraction, bool own) {
    base::require(fraction == 0.0 || !own,
                  "data: 'data.{0}_fraction': expected 0, because the set already has such a part", part);
  };
  check_free("valid", options.valid_fraction, found.valid.has_value());
  check_free("test", options.test_fraction, found.test.has_value());
  // One cache for all parts taken from the training images.
  const ImageSet cached = is_raw ? all : all.with_source(keep_decoded(all.source(), kept));
  const Split parts = split(cached, options);
  ImageSets sets;
  sets.train = std::make_shared<ImageSet>(cached.subset(parts.train));
  base::require(sets.train->size() > 0, "{}: no image is left for training", options.train);
  if (!parts.valid.empty()) sets.valid = std::make_shared<ImageSet>(cached.subset(parts.valid));
  if (!parts.test.empty()) sets.test = std::make_shared<ImageSet>(cached.subset(parts.test));
  if (found.valid) sets.valid = finished(set_of(*found.valid));
  if (found.test) sets.test = finished(set_of(*found.test));
  return sets;
}

}  // namespace mnemo::data
