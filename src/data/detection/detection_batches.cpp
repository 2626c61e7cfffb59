#include "data/detection/detection_batches.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/file_io.h"
#include "data/detection/box_lines.h"
#include "data/images/image_reader.h"

namespace mnemo::data {
namespace {

/// One batch in the making: rows are read and transformed in any order, then padded together.
class DetectionWork final : public BatchWork {
 public:
  using Transform = std::function<AnnotatedImage(const AnnotatedImage&, int64_t row)>;
  DetectionWork(const AnnotatedImages& images, const DetectionTransform& transform, std::vector<int64_t> indices,
                int64_t divisor, int64_t first_draw, Transform make)
      : images_(images),
        transform_(transform),
        indices_(std::move(indices)),
        divisor_(divisor),
        first_draw_(first_draw),
        make_(std::move(make)),
        rows_(indices_.size()),
        stored_(indices_.size()) {}

  int64_t rows() const override { return static_cast<int64_t>(indices_.size()); }

  void make_row(int64_t row) override {
    const auto k = static_cast<size_t>(row);
    const AnnotatedImage image = images_.read(indices_[k]);
    stored_[k] = {image.image.height, image.image.width};
    rows_[k] = make_(image, row);
    std::erase_if(rows_[k].objects,  // a smaller image may have taken the rest of a box
                  [](const AnnotatedObject& object) { return object.crowd || !has_area(object.box); });
  }

  void finish() override {
    int64_t height = 0, width = 0, objects = 0;
    for (const AnnotatedImage& row : rows_) {
      height = std::max(height, row.image.height);
      width = std::max(width, row.image.width);
      objects += static_cast<int64_t>(row.objects.size());
    }
    height = (height + divisor_ - 1) / divisor_ * divisor_;
    width = (width + divisor_ - 1) / divisor_ * divisor_;
    allocate(height, width, objects);
    int64_t at = 0;
    for (size_t b = 0; b < rows_.size(); ++b) put(b, height, width, at);
  }

  DetectionBatch batch;

 private:
  void allocate(int64_t height, int64_t width, int64_t objects) {
    batch.pixels = at::zeros({rows(), 3, height, width}, at::kFloat);
    DetectionTargets& targets = batch.targets;
    targets.boxes.values = at::empty({objects, 4}, at::kFloat);
    targets.labels.values = at::empty({objects}, at::kLong);
    if (images_.masks()) targets.masks.values = at::zeros({objects, height, width}, at::kBool);
    targets.sizes = at::empty({rows(), 2}, at::kLong);
    targets.stored = at::empty({rows(), 2}, at::kLong);
    targets.images = at::empty({rows()}, at::kLong);
    targets.draws = at::arange(first_draw_, first_draw_ + rows(), at::kLong);
  }

  void put(size_t b, int64_t height, int64_t width, int64_t& at) {
    const AnnotatedImage& row = rows_[b];
    DetectionTargets& targets = batch.targets;
    const auto first = static_cast<int64_t>(b);
    transform_.normalise(row.image, height, width, batch.pixels.mutable_data_ptr<float>() + first * 3 * height * width);
    int64_t *size = targets.sizes.mutable_data_ptr<int64_t>() + 2 * first,
            *stored = targets.stored.mutable_data_ptr<int64_t>() + 2 * first;
    size[0] = row.image.height, size[1] = row.image.width, stored[0] = stored_[b].first, stored[1] = stored_[b].second;
    targets.images.mutable_data_ptr<int64_t>()[b] = indices_[b];
    for (const AnnotatedObject& object : row.objects) {
      std::transform(object.box.begin(), object.box.end(), targets.boxes.values.mutable_data_ptr<float>() + 4 * at,
                     [](double v) { return static_cast<float>(v); });
      targets.labels.values.mutable_data_ptr<int64_t>()[at] = object.category;
      if (targets.masks.values.defined()) put_mask(object.mask, height, width, at);
      ++at;
    }
    for (Ragged* ragged : {&targets.boxes, &targets.labels, &targets.masks})
      ragged->counts.push_back(static_cast<int64_t>(row.objects.size()));
  }

  void put_mask(const PixelBitmap& mask, int64_t height, int64_t width, int64_t at) {
    bool* to = batch.targets.masks.values.mutable_data_ptr<bool>() + at * height * width;
    for (int64_t y = 0; y < mask.height; ++y) {
      for (int64_t x = 0; x < mask.width; ++x)
        to[y * width + x] = mask.bytes[static_cast<size_t>(y * mask.width + x)] != 0;
    }
  }

  const AnnotatedImages& images_;
  const DetectionTransform& transform_;
  std::vector<int64_t> indices_;
  int64_t divisor_, first_draw_;
  Transform make_;
  std::vector<AnnotatedImage> rows_;
  std::vector<std::pair<int64_t, int64_t>> stored_;
};

void require_batches(const AnnotatedImages& images, const DetectionBatchOptions& options) {
  base::require(images.size() > 0, "{}: no images", images.set().path);
  base::require(options.batch_size > 0 && options.divisor > 0, "{}: expected a batch size and a divisor of at least 1",
                images.set().path);
}

/// The images by height / width.
std::vector<int64_t> by_shape(const CocoSet& set) {
  std::vector<int64_t> order(set.images.size());
  std::iota(order.begin(), order.end(), 0);
  const auto shape = [&](int64_t i) {
    const CocoImage& image = set.images[static_cast<size_t>(i)];
    return static_cast<double>(image.height) / static_cast<double>(std::max<int64_t>(1, image.width));
  };
  std::ranges::stable_sort(order, std::less{}, shape);
  return order;
}

DetectionBatch taken_from(BatchWork& work) { return std::move(static_cast<DetectionWork&>(work).batch); }

}  // namespace

AnnotatedImages::AnnotatedImages(CocoSet set, std::string folder, bool masks)
    : set_(std::move(set)), folder_(std::move(folder)), masks_(masks), objects_(set_.images.size()) {
  for (const CocoImage& image : set_.images)
    require_inside(image.file, fmt::format("{}: image {}", set_.path, image.id));
  for (size_t i = 0; i < set_.objects.size(); ++i) {
    const CocoObject& object = set_.objects[i];
    base::require(!masks || object.crowd || !object.segmentation.empty(), "{}: expected a 'segmentation', found none",
                  set_.where(object));
    if (!masks || !object.segmentation.empty()) objects_[static_cast<size_t>(object.image)].push_back(i);
  }
}

std::string AnnotatedImages::path(int64_t i) const {
  return base::join_path(folder_, set_.images[static_cast<size_t>(i)].file);
}

int AnnotatedImages::orientation(int64_t i) const { return read_image_header(path(i)).orientation; }

AnnotatedImage AnnotatedImages::read(int64_t i) const {
  return annotate(read_image(path(i)), orientation(i), set_, objects_[static_cast<size_t>(i)], static_cast<int32_t>(i),
                  masks_);
}

TrainingDetections::TrainingDetections(std::shared_ptr<const AnnotatedImages> images,
                                       const DetectionTransformOptions& transform, const DetectionBatchOptions& options,
                                       bool shuffle, int64_t seed)
    : images_(std::move(images)),
      transform_(transform),
      options_(options),
      seed_(seed),
      order_(images_->size(), shuffle, seed),
      batches_(
          [this](int64_t number) -> std::unique_ptr<BatchWork> {
            std::vector<int64_t> indices;
            for (int64_t row = 0; row < options_.batch_size; ++row)
              indices.push_back(order_[number * options_.batch_size + row]);
            return std::make_unique<DetectionWork>(
                *images_, transform_, std::move(indices), options_.divisor, number * options_.batch_size,
                [this, number](const AnnotatedImage& image, int64_t row) {
                  base::Random random{static_cast<uint64_t>(seed_),
                                      static_cast<uint64_t>(number * options_.batch_size + row)};
                  return transform_.train(image, random);
                });
          },
          options.workers) {
  require_batches(*images_, options);
}

DetectionBatch TrainingDetections::next() { return taken_from(*batches_.next()); }

MeasuredDetections::MeasuredDetections(std::shared_ptr<const AnnotatedImages> images,
                                       const DetectionTransformOptions& transform, const DetectionBatchOptions& options,
                                       const DetectionShare& share)
    : images_(std::move(images)),
      transform_(transform),
      options_(options),
      share_(share),
      order_(by_shape(images_->set())),
      batches_(
          [this](int64_t number) -> std::unique_ptr<BatchWork> {
            std::vector<int64_t> indices;
            const int64_t first = (share_.rank + number * share_.ranks) * options_.batch_size;
            for (int64_t k = first; k < std::min(first + options_.batch_size, images_->size()); ++k)
              indices.push_back(order_[static_cast<size_t>(k)]);
            if (indices.empty()) return nullptr;
            return std::make_unique<DetectionWork>(
                *images_, transform_, std::move(indices), options_.divisor, first,
                [this](const AnnotatedImage& image, int64_t /*row*/) { return transform_.measure(image); });
          },
          options.workers) {
  require_batches(*images_, options);
}

bool MeasuredDetections::next(DetectionBatch& batch) {
  const std::unique_ptr<BatchWork> work = batches_.next();
  if (work == nullptr) return false;
  batch = taken_from(*work);
  return true;
}

}  // namespace mnemo::data
