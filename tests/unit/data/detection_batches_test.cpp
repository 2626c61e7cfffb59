// Batches of annotated images: order, resume, threads, padding.
#include "data/detection/detection_batches.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/file_io.h"
#include "data/detection/box_lines.h"
#include "data/images/image_reader.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::data {
namespace {

/// Images with a crowd and two objects each, whose masks fill their boxes.
std::shared_ptr<const AnnotatedImages> boxed_images(bool masks) {
  CocoSet set{.path = "set", .categories = {{1, "a"}, {2, "b"}}};
  for (const std::string& file : pictures()) {
    const ImageHeader header = read_image_header(golden_image(file));
    const bool turned = header.orientation >= 5;
    const int64_t height = turned ? header.width : header.height, width = turned ? header.height : header.width;
    const auto image = static_cast<int32_t>(set.images.size());
    set.images.push_back({image + 1, file, height, width});
    for (int32_t k = 0; k < 3; ++k) {
      const XywhBox box = {static_cast<double>(k), 1, static_cast<double>(width) / 2, static_cast<double>(height) / 2};
      const double right = box[0] + box[2], bottom = box[1] + box[3];
      set.objects.push_back({.id = static_cast<int64_t>(set.objects.size()) + 1,
                             .image = image,
                             .category = k % 2,
                             .box = box,
                             .area = box[2] * box[3],
                             .crowd = k == 2,
                             .segmentation = {{{box[0], box[1], right, box[1], right, bottom, box[0], bottom}}, {}}});
    }
  }
  return std::make_shared<const AnnotatedImages>(std::move(set), MNEMO_SOURCE_DIR "/tests/golden/data/images/files",
                                                 masks);
}

DetectionTransformOptions varied() {
  DetectionTransformOptions options;
  options.sides = {24, 32, 40};
  options.longest = 64;
  options.colour = 0.3;
  return options;
}

void expect_equal(const DetectionBatch& a, const DetectionBatch& b) {
  EXPECT_TRUE(a.pixels.equal(b.pixels));
  EXPECT_TRUE(a.targets.boxes.values.equal(b.targets.boxes.values));
  EXPECT_TRUE(a.targets.labels.values.equal(b.targets.labels.values));
  EXPECT_TRUE(a.targets.masks.values.equal(b.targets.masks.values));
  EXPECT_TRUE(a.targets.sizes.equal(b.targets.sizes));
  EXPECT_TRUE(a.targets.images.equal(b.targets.images));
  EXPECT_EQ(a.targets.boxes.counts, b.targets.boxes.counts);
}

TEST(TrainingDetections, APositionIsANumber) {
  const auto images = boxed_images(true);
  std::vector<DetectionBatch> batches;
  for (const int64_t workers : {0, 2}) {
    TrainingDetections all(images, varied(), {3, 32, workers}, true, 7);
    for (int64_t i = 0; i < 6; ++i) {
      const DetectionBatch batch = all.next();
      if (workers == 0) {
        batches.push_back(batch);
      } else {
        expect_equal(batch, batches[static_cast<size_t>(i)]);
      }
    }
  }
  EXPECT_FALSE(batches[0].pixels.equal(batches[1].pixels));
  TrainingDetections resumed(images, varied(), {3, 32, 0}, true, 7), other(images, varied(), {3, 32, 0}, true, 8);
  resumed.seek(4);
  expect_equal(resumed.next(), batches[4]);
  EXPECT_EQ(resumed.position(), 5);
  EXPECT_FALSE(other.next().targets.images.equal(batches[0].targets.images));
}

// Each epoch has each image once; images are padded with zeros to a multiple of the divisor; masks lie in their boxes.
TEST(TrainingDetections, ImagesArePadded) {
  const auto images = boxed_images(true);
  TrainingDetections all(images, varied(), {4, 32, 0}, true, 1);
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < images->size() / 4; ++i) {
    const DetectionBatch batch = all.next();
    EXPECT_EQ(batch.pixels.size(2) % 32, 0);
    EXPECT_EQ(batch.pixels.size(3) % 32, 0);
    int64_t object = 0;
    for (int64_t b = 0; b < 4; ++b) {
      seen.push_back(batch.targets.images[b].item<int64_t>());
      const int64_t height = batch.targets.sizes[b][0].item<int64_t>(),
                    width = batch.targets.sizes[b][1].item<int64_t>();
      EXPECT_LE(std::max(height, width), 64);
      EXPECT_EQ(batch.pixels[b].slice(1, height).abs().sum().item<float>(), 0.f);
      EXPECT_EQ(batch.pixels[b].slice(2, width).abs().sum().item<float>(), 0.f);
      ASSERT_EQ(batch.targets.boxes.counts[static_cast<size_t>(b)], 2);  // no crowd
      for (int64_t k = 0; k < 2; ++k, ++object) {
        const at::Tensor box = batch.targets.boxes.values[object], mask = batch.targets.masks.values[object];
        EXPECT_LE(box[2].item<float>(), static_cast<float>(width) + 1e-3f);
        EXPECT_LE(box[3].item<float>(), static_cast<float>(height) + 1e-3f);
        const auto edge = [&](int64_t i) { return std::llround(box[i].item<double>()); };
        const int64_t inside = mask.slice(0, std::max<int64_t>(0, edge(1) - 2), edge(3) + 2)
                                   .slice(1, std::max<int64_t>(0, edge(0) - 2), edge(2) + 2)
                                   .sum()
                                   .item<int64_t>();
        EXPECT_EQ(inside, mask.sum().item<int64_t>());
        EXPECT_GT(inside, 0);
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
}

// Mirrored, a box at the left edge has large coordinates, between which float32 has fewer numbers.
TEST(TrainingDetections, NoBoxIsEmpty) {
  const auto images = boxed_images(false);
  CocoSet set = images->set();
  constexpr int64_t kLongest = 1024;
  const double scale = static_cast<double>(kLongest) /
                       static_cast<double>(std::max(set.images[0].height, set.images[0].width));
  set.objects[0].box = {0, 1, 1e-5 / scale, 5};
  DetectionTransformOptions options;
  options.sides = {kLongest};
  options.longest = kLongest;
  for (const double flip : {0.0, 1.0}) {
    options.flip = flip;
    TrainingDetections all(std::make_shared<const AnnotatedImages>(set, images->folder(), false), options, {1, 32, 0},
                           false, 1);
    const DetectionBatch batch = all.next();
    EXPECT_EQ(batch.targets.boxes.counts[0], flip == 0.0 ? 2 : 1);
    EXPECT_EQ(batch.targets.labels.values.size(0), flip == 0.0 ? 2 : 1);
    EXPECT_GT((batch.targets.boxes.values.slice(1, 2) - batch.targets.boxes.values.slice(1, 0, 2)).min().item<float>(),
              0.f);
  }
}

TEST(TrainingDetections, LargeScaleJitterIsASquare) {
  DetectionTransformOptions options = varied();
  options.jitter = {0.3, 2.0};
  TrainingDetections all(boxed_images(true), options, {4, 1, 0}, true, 1);
  for (int64_t i = 0; i < 4; ++i) {
    const DetectionBatch batch = all.next();
    EXPECT_EQ(batch.pixels.size(2), 40);
    EXPECT_EQ(batch.pixels.size(3), 40);
    if (batch.targets.boxes.values.size(0) == 0) continue;
    EXPECT_GE(batch.targets.boxes.values.min().item<float>(), 0.f);
    EXPECT_LE(batch.targets.boxes.values.max().item<float>(), 40.f);
  }
}

TEST(MeasuredDetections, AreAllImagesByShape) {
  const auto images = boxed_images(false);
  MeasuredDetections all(images, varied(), {3, 32, 0});
  DetectionBatch batch;
  std::vector<int64_t> seen;
  double before = 0;
  while (all.next(batch)) {
    for (int64_t b = 0; b < batch.pixels.size(0); ++b) {
      seen.push_back(batch.targets.images[b].item<int64_t>());
      const CocoImage& image = images->set().images[static_cast<size_t>(seen.back())];
      const double shape = static_cast<double>(image.height) / static_cast<double>(image.width);
      EXPECT_GE(shape, before);
      before = shape;
      const int64_t shorter = batch.targets.sizes[b].min().item<int64_t>();
      EXPECT_TRUE(shorter == 40 || batch.targets.sizes[b].max().item<int64_t>() == 64);
    }
    EXPECT_FALSE(batch.targets.masks.values.defined());
    EXPECT_EQ(num_rows(batch.targets), batch.pixels.size(0));
  }
  std::sort(seen.begin(), seen.end());
  ASSERT_EQ(static_cast<int64_t>(seen.size()), images->size());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
}

TEST(MeasuredDetections, SharesAreWholeBatches) {
  const auto images = boxed_images(false);
  const auto batches_of = [&](const DetectionShare& share) {
    MeasuredDetections own(images, varied(), {2, 32, 0}, share);
    std::vector<at::Tensor> batches;
    for (DetectionBatch batch; own.next(batch);) batches.push_back(batch.targets.images);
    return batches;
  };
  const std::vector<at::Tensor> all = batches_of({});
  const std::vector<std::vector<at::Tensor>> shares = {batches_of({0, 2}), batches_of({1, 2})};
  ASSERT_GT(all.size(), 1U);
  EXPECT_EQ(shares[0].size() + shares[1].size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(shares[i % 2][i / 2], all[i])) << i;
}

// EXIF turns these images; a line without a size has that of the stored pixels.
TEST(AnnotatedImages, LinesWithoutASize) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (const char* file : {"orientation_1.jpg", "orientation_6.jpg"}) {
    base::write_file_atomic(folder / file, base::read_file(golden_image(file)));
    lines += fmt::format("{{\"file_name\": \"{}\", \"objects\": {{\"bbox\": [[0, 1, 2, 3]], \"categories\": [7]}}}}\n",
                         file);
  }
  base::write_file_atomic(folder / kLinesFile, lines);
  const AnnotatedImages images(read_box_lines(folder.path()), folder.path(), false);
  for (int64_t i = 0; i < images.size(); ++i) {
    const AnnotatedImage image = images.read(i);
    EXPECT_EQ(image.objects.size(), 1U);
    EXPECT_NE(image.image.height, image.image.width) << "or sizes could be exchanged";
  }
}

TEST(AnnotatedImages, ErrorsNameTheFile) {
  CocoSet set{.path = "f.json", .images = {{3, "../x.jpg", 4, 4}}, .categories = {{1, "a"}}};
  test::expect_error<base::InputError>([&] { AnnotatedImages(set, "/tmp", false); }, {"f.json: image 3", "../x.jpg"});
  set.images[0].file = "none-of-that-name.jpg";
  const AnnotatedImages images(set, "/tmp", false);
  test::expect_error<base::InputError>([&] { images.read(0); }, {"/tmp/none-of-that-name.jpg"});
  set.objects.push_back({.id = 9, .image = 0, .category = 0, .box = {0, 0, 1, 1}});
  test::expect_error<base::InputError>([&] { AnnotatedImages(set, "/tmp", true); }, {"annotation 9", "segmentation"});
  DetectionTransformOptions options;
  options.sides = {0};
  test::expect_error<base::InputError>([&] { DetectionTransform transform(options); }, {"sides"});
}

}  // namespace
}  // namespace mnemo::data
