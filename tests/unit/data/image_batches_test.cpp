#include "data/images/image_batches.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/ignore_target.h"
#include "base/log.h"
#include "data/batch.h"
#include "image_files.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

using base::InputError;

class CountedWork final : public BatchWork {
 public:
  CountedWork(int64_t batch_number, int64_t fail_from) : number(batch_number), fail_from_(fail_from) {}
  int64_t rows() const override { return 5; }
  void make_row(int64_t row) override {
    // Later rows are ready first, so that the order cannot come from timing.
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (5 - row)));
    if (fail_from_ >= 0 && row >= fail_from_) base::input_error("batch {} row {}", number, row);
    made[static_cast<size_t>(row)] = true;
  }
  void finish() override {
    for (const bool row : made) complete = complete && row;
  }
  int64_t number;
  bool complete = true;

 private:
  int64_t fail_from_;
  std::array<std::atomic<bool>, 5> made{};
};

class ImageBatchesTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(ImageBatchesTest, BatchesComeInOrderCompleteAndEnd) {
  OrderedBatches batches([](int64_t n) { return n < 20 ? std::make_unique<CountedWork>(n, -1) : nullptr; }, GetParam());
  for (int64_t n = 0; n < 20; ++n) {
    EXPECT_EQ(batches.position(), n);
    const auto work = batches.next();
    EXPECT_EQ(static_cast<CountedWork&>(*work).number, n);
    EXPECT_TRUE(static_cast<CountedWork&>(*work).complete);
  }
  EXPECT_EQ(batches.next(), nullptr);
  for (const int64_t number : {7, 3, 12}) {  // from the end, and away from prefetched batches
    batches.seek(number);
    EXPECT_EQ(static_cast<CountedWork&>(*batches.next()).number, number);
  }
}

TEST_P(ImageBatchesTest, TheFirstRowThatFailsSpeaksWhenItsBatchIsDue) {
  OrderedBatches batches([](int64_t n) { return std::make_unique<CountedWork>(n, n == 2 ? 1 : -1); }, GetParam());
  batches.next();
  batches.next();
  test::expect_error<InputError>([&] { batches.next(); }, {"batch 2 row 1"});
  EXPECT_EQ(static_cast<CountedWork&>(*batches.next()).number, 3);
}

ImageOptions everything(const std::string& train) {
  ImageOptions options = small_images(train);
  options.augment.randaugment.num_ops = 2;
  options.augment.interpolation = ImageAugmentOptions::CropInterpolation::random;
  options.augment.erase = 0.5;
  options.augment.mixup = 0.8;
  options.augment.cutmix = 1.0;
  options.augment.label_smoothing = 0.1;
  options.augment.repeats = 2;
  return options;
}

std::vector<at::Tensor> run(const ImageOptions& options, int64_t from, int64_t count) {
  TrainingImages images(load_images(options).train, options, 5, true, 9);
  images.seek(from);
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < count; ++i) {
    const ImageBatch batch = images.next();
    all.insert(all.end(), {batch.pixels, batch.labels, batch.targets});
  }
  return all;
}

TEST_P(ImageBatchesTest, TrainingImagesAreTheSameBitsWithAnyNumberOfWorkers) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train");
  ImageOptions options = everything(folder / "train");
  const auto expected = run(options, 0, 8);
  options.workers = GetParam();
  const auto found = run(options, 0, 8);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], found[i])) << i;
  options.keep_decoded = 0;
  const auto later = run(options, 5, 3);
  for (size_t i = 0; i < later.size(); ++i) EXPECT_TRUE(at::equal(expected[15 + i], later[i])) << i;
  EXPECT_FALSE(at::equal(expected[0], expected[3]));
}

TEST_P(ImageBatchesTest, ABrokenImageStopsWithItsPath) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train");
  write_text(folder / "train/bee/1.jpg", "this is no image");
  std::filesystem::remove(folder / "train/bee/1.png");
  ImageOptions options = small_images(folder / "train");
  options.workers = GetParam();
  TrainingImages images(load_images(options).train, options, 13, false, 0);
  test::expect_error<InputError>([&] { images.next(); }, {folder / "train/bee/1.jpg", "expected a JPEG or PNG image",
                                                          "data.broken = \"skip\" leaves"});
}

TEST_P(ImageBatchesTest, BrokenImagesAreSkippedAndCountedWhenAsked) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "train/bee")) {
    if (entry.path().stem() == "1" || entry.path().stem() == "3") write_text(entry.path().string(), "broken");
  }
  ImageOptions options = small_images(folder / "train");
  options.workers = GetParam();
  options.broken = ImageOptions::Broken::skip;
  base::set_log_level(base::LogLevel::silent);
  const auto set = load_images(options).train;
  TrainingImages images(set, options, 12, false, 0);
  const ImageBatch batch = images.next();
  images.next();
  EXPECT_EQ(images.num_broken(), 2);
  const auto* labels = batch.labels.const_data_ptr<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(labels, labels + 12),
            (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2}));  // the next one is a cat

  MeasuredImages measured(set, options, 5, 100);
  ImageBatch part;
  std::vector<int64_t> seen;
  while (measured.next(part)) {
    const auto* own = part.labels.const_data_ptr<int64_t>();
    seen.insert(seen.end(), own, own + part.labels.size(0));
  }
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 0, 0, 0, 1, base::kIgnoreTarget, 1, base::kIgnoreTarget, 2, 2, 2, 2}));
  EXPECT_EQ(measured.num_broken(), 2);
  base::set_log_level(base::LogLevel::info);
}

INSTANTIATE_TEST_SUITE_P(Workers, ImageBatchesTest, ::testing::Values(0, 1, 3));

TEST(TrainingImages, RepeatsStandSideBySideAndAnEpochStaysAsLong) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train", 4);
  ImageOptions options = small_images(folder / "train");
  options.augment.repeats = 3;
  TrainingImages images(load_images(options).train, options, 12, false, 0);
  at::Tensor before;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const ImageBatch batch = images.next();
    if (before.defined()) {
      EXPECT_FALSE(at::equal(batch.pixels[0], before[0]));  // the same image, augmented differently
    }
    before = batch.pixels;
    const auto* labels = batch.labels.const_data_ptr<int64_t>();
    EXPECT_EQ(std::vector<int64_t>(labels, labels + 12),
              std::vector<int64_t>(12, 0));  // the first four images, all of one class
    EXPECT_FALSE(at::equal(batch.pixels[0], batch.pixels[1]));
  }
}

// Beside a twin whose batches are not mixed: both the pixels and the targets have the same share of the reversed batch.
TEST(TrainingImages, ABatchIsMixedInPixelsAndTargetsAlike) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train", 4);
  ImageOptions options = small_images(folder / "train");
  options.augment.crop = ImageAugmentOptions::Crop::none;
  options.augment.flip = 0;
  const auto set = load_images(options).train;
  for (const bool cut : {false, true}) {
    (cut ? options.augment.cutmix : options.augment.mixup) = 0.8;
    (cut ? options.augment.mixup : options.augment.cutmix) = 0;
    ImageOptions unmixed = options;
    unmixed.augment.mixup = unmixed.augment.cutmix = 0;
    // 12 images in an odd batch, which begins with other classes each time.
    TrainingImages mixed(set, options, 11, false, 3), twin(set, unmixed, 11, false, 3);
    int64_t with_others = 0;
    for (int64_t number = 0; number < 8; ++number) {
      const ImageBatch found = mixed.next(), plain = twin.next();
      const std::string where = fmt::format("{} batch {}", cut ? "cutmix" : "mixup", number);
      ASSERT_TRUE(at::equal(found.labels, plain.labels)) << where;
      const at::Tensor other = plain.pixels.flip(0), own = at::one_hot(plain.labels, 3).to(at::kFloat);
      const auto row = plain.labels.ne(plain.labels.flip(0)).nonzero()[0].item<int64_t>();
      const auto lambda = found.targets[row][plain.labels[row].item<int64_t>()].item<double>();
      with_others += lambda < 0.999;
      EXPECT_LE((own * lambda + own.flip(0) * (1.0 - lambda) - found.targets).abs().max().item<double>(), 1e-6)
          << where;
      if (!cut) {
        const at::Tensor expected = plain.pixels * lambda + other * (1.0 - lambda);
        EXPECT_LE((expected - found.pixels).abs().max().item<double>(), 1e-5) << where;
        continue;
      }
      const at::Tensor changed = found.pixels.ne(plain.pixels);
      EXPECT_TRUE(at::logical_or(changed.logical_not(), found.pixels.eq(other)).all().item<bool>()) << where;
      const auto box = changed.any(0).any(0).to(at::kDouble).mean().item<double>();
      EXPECT_NEAR(box, 1.0 - lambda, 1e-6) << where;
    }
    EXPECT_GE(with_others, 1) << (cut ? "cutmix" : "mixup");
  }
}

TEST(MeasuredImages, AreTheTestCropInOrderEvenlySpread) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train", 3);
  ImageOptions options = small_images(folder / "train");
  options.workers = 2;
  const auto set = load_images(options).train;
  MeasuredImages images(set, options, 4, 6);
  ImageBatch batch;
  const ImageTransform transform(options);
  at::Tensor expected = at::empty({3, 16, 20});
  int64_t row = 0;
  while (images.next(batch)) {
    for (int64_t i = 0; i < batch.labels.size(0); ++i, ++row) {
      const int64_t index = std::vector<int64_t>{0, 1, 3, 4, 6, 7}[static_cast<size_t>(row)];  // 6 of 9
      transform.measure(*set->read(index), expected.mutable_data_ptr<float>());
      EXPECT_TRUE(at::equal(batch.pixels[i], expected)) << row;
      EXPECT_EQ(batch.labels[i].item<int64_t>(), set->label(index));
    }
  }
  EXPECT_EQ(row, 6);
}

}  // namespace
}  // namespace mnemo::data
