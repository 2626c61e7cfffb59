#include "data/images/image_batches.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/log.h"
#include "data/batch.h"
#include "data/images/image_mix.h"

namespace mnemo::data {
namespace {

/// Independent random streams of a run.
enum Stream : uint64_t { kSample = 1, kMix = 2 };

base::Random stream(int64_t seed, Stream kind, int64_t number) {
  return base::Random{static_cast<uint64_t>(seed), kind, static_cast<uint64_t>(number)};
}

/// An error of an unreadable image where they are not left out.
[[noreturn]] void stop_at(const base::InputError& error) {
  base::input_error("{}; data.broken = \"skip\" leaves unreadable images out", error.what());
}

/// Image i of a set; with `skip`, the next readable one, wrapping around.
std::shared_ptr<const Image> read_or_next(const ImageSet& set, int64_t& i, bool skip, BrokenImages& broken) {
  for (int64_t tries = 0;; ++tries) {
    try {
      return set.read(i);
    } catch (const base::InputError& error) {
      if (!skip) stop_at(error);
      broken.add(set.name(i), error.what());
      base::require(tries + 1 < set.size(), "{}: none of the {} training images can be read", set.name(i), set.size());
      i = (i + 1) % set.size();
    }
  }
}

at::Tensor empty_pixels(int64_t batch, const ImageTransform& transform) {
  return at::empty({batch, 3, transform.height(), transform.width()}, at::kFloat);
}

}  // namespace

void BrokenImages::add(const std::string& name, const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (names_.insert(name).second) base::log_warning("skipped {} ({} so far)", error, names_.size());
}

int64_t BrokenImages::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(names_.size());
}

class TrainingImages::Work final : public BatchWork {
 public:
  Work(TrainingImages& owner, int64_t number, std::vector<int64_t> images)
      : owner_(owner), number_(number), images_(std::move(images)) {
    batch.pixels = empty_pixels(rows(), owner.transform_);
    batch.labels = at::empty({rows()}, at::kLong);
  }

  int64_t rows() const override { return static_cast<int64_t>(images_.size()); }

  void make_row(int64_t row) override {
    int64_t index = images_[static_cast<size_t>(row)];
    const auto image = read_or_next(*owner_.set_, index, owner_.options_.broken == ImageOptions::Broken::skip,
                                    owner_.broken_);
    base::Random random = stream(owner_.seed_, kSample, number_ * rows() + row);
    owner_.transform_.train(*image, random, batch.pixels.mutable_data_ptr<float>() + row * owner_.transform_.numbers());
    batch.labels.mutable_data_ptr<int64_t>()[row] = owner_.set_->label(index);
  }

  void finish() override {
    const ImageAugmentOptions& augment = owner_.options_.augment;
    if (augment.mixup == 0.0 && augment.cutmix == 0.0 && augment.label_smoothing == 0.0) return;
    const int64_t height = owner_.transform_.height(), width = owner_.transform_.width(),
                  classes = owner_.set_->num_classes();
    base::Random random = stream(owner_.seed_, kMix, number_);
    const ImageMix mix = draw_mix(augment, height, width, random);
    mix_pixels(batch.pixels.mutable_data_ptr<float>(), rows(), height, width, mix);
    batch.targets = at::empty({rows(), classes}, at::kFloat);
    mix_targets(batch.labels.const_data_ptr<int64_t>(), rows(), classes, augment.label_smoothing, mix.lambda,
                batch.targets.mutable_data_ptr<float>());
  }

  ImageBatch batch;

 private:
  TrainingImages& owner_;
  int64_t number_;
  std::vector<int64_t> images_;
};

TrainingImages::TrainingImages(std::shared_ptr<const ImageSet> set, const ImageOptions& options, int64_t batch_size,
                               bool shuffle, int64_t seed)
    : set_(std::move(set)),
      options_(options),
      transform_(options),
      batch_size_(batch_size),
      seed_(seed),
      order_(set_->size(), shuffle, seed),
      batches_([this](int64_t number) { return begin(number); }, options.workers) {}

std::unique_ptr<BatchWork> TrainingImages::begin(int64_t number) {
  std::vector<int64_t> images;
  for (int64_t row = 0; row < batch_size_; ++row) {
    // An epoch has as many images as the set; with repeats, only the first ones of its order, repeated that often.
    const int64_t at = number * batch_size_ + row, epoch = at / set_->size(), within = at % set_->size();
    images.push_back(order_[epoch * set_->size() + within / options_.augment.repeats]);
  }
  return std::make_unique<Work>(*this, number, std::move(images));
}

ImageBatch TrainingImages::next() { return std::move(static_cast<Work&>(*batches_.next()).batch); }

class MeasuredImages::Work final : public BatchWork {
 public:
  Work(MeasuredImages& owner, std::vector<int64_t> images) : owner_(owner), images_(std::move(images)) {
    batch.pixels = empty_pixels(rows(), owner.transform_);
    batch.labels = at::empty({rows()}, at::kLong);
  }

  int64_t rows() const override { return static_cast<int64_t>(images_.size()); }

  void make_row(int64_t row) override {
    float* pixels = batch.pixels.mutable_data_ptr<float>() + row * owner_.transform_.numbers();
    int64_t& label = batch.labels.mutable_data_ptr<int64_t>()[row];
    const int64_t index = images_[static_cast<size_t>(row)];
    try {
      owner_.transform_.measure(*owner_.set_->read(index), pixels);
      label = owner_.set_->label(index);
    } catch (const base::InputError& error) {
      if (!owner_.skip_) stop_at(error);
      owner_.broken_.add(owner_.set_->name(index), error.what());
      std::fill_n(pixels, owner_.transform_.numbers(), 0.0F);
      label = base::kIgnoreTarget;
    }
  }

  ImageBatch batch;

 private:
  MeasuredImages& owner_;
  std::vector<int64_t> images_;
};

MeasuredImages::MeasuredImages(std::shared_ptr<const ImageSet> set, const ImageOptions& options, int64_t batch_size,
                               int64_t samples, const BatchShare& share)
    : set_(std::move(set)),
      transform_(options),
      skip_(options.broken == ImageOptions::Broken::skip),
      batches_(
          [this, batch_size, share,
           total = std::min(samples, set_->size())](int64_t number) -> std::unique_ptr<BatchWork> {
            const int64_t first = (share.first + number * share.step) * batch_size;
            std::vector<int64_t> chosen;
            for (int64_t k = first; k < std::min(first + batch_size, total); ++k)
              chosen.push_back(k * set_->size() / total);
            return chosen.empty() ? nullptr : std::make_unique<Work>(*this, std::move(chosen));
          },
          options.workers) {}

bool MeasuredImages::next(ImageBatch& batch) {
  const auto work = batches_.next();
  if (work == nullptr) return false;
  batch = std::move(static_cast<Work&>(*work).batch);
  return true;
}

}  // namespace mnemo::data
