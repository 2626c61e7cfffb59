#include "data/images/image_set.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "data/images/image_describe.h"
#include "image_files.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

using base::InputError;

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}
std::string idx_images(uint32_t count, uint32_t height, uint32_t width) {
  std::string bytes = std::string("\0\0\x08\x03", 4) + big_endian(count) + big_endian(height) + big_endian(width);
  for (uint32_t i = 0; i < count * height * width; ++i) bytes += static_cast<char>(i);
  return bytes;
}
std::string idx_labels(const std::string& labels) {
  return std::string("\0\0\x08\x01", 4) + big_endian(static_cast<uint32_t>(labels.size())) + labels;
}
void write_packed(const std::string& path, const std::string& bytes) {
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
}

TEST(ImageSet, LinksNeitherLoopNorLeaveTheSet) {
  namespace fs = std::filesystem;
  const test::TemporaryFolder folder;
  place_image(folder / "set/ant/1.png", "rgb8.png");
  place_image(folder / "set/bee/2.png", "rgb8.png");
  place_image(folder / "elsewhere/3.png", "rgb8.png");
  const std::vector<std::string> two = {"1.png: ant", "2.png: bee"}, three = {"1.png: ant", "3.png: ant", "2.png: bee"};
  fs::create_directory_symlink("..", folder / "set/ant/loop");
  fs::create_directory_symlink("../bee", folder / "set/ant/other");
  EXPECT_EQ(listed(*load_images(set_of(Format::folders, folder / "set")).train), two);
  fs::create_directory_symlink(folder / "set", folder / "entrance");
  EXPECT_EQ(listed(*load_images(set_of(Format::folders, folder / "entrance")).train), two);
  fs::create_directory_symlink("../../elsewhere", folder / "set/ant/way_out");
  fs::create_directory_symlink("../../elsewhere", folder / "set/bee/way_out");
  test::expect_error<InputError>([&] { load_images(set_of(Format::folders, folder / "set")); },
                                 {folder / "set/ant/way_out", folder / "elsewhere", "data.follow_links = true"});
  ImageOptions follows = set_of(Format::folders, folder / "set");
  follows.follow_links = true;
  EXPECT_EQ(listed(*load_images(follows).train), three);
  fs::remove(folder / "set/ant/way_out");
  fs::remove(folder / "set/bee/way_out");
  fs::create_symlink("../../elsewhere/3.png", folder / "set/ant/3.png");
  test::expect_error<InputError>([&] { load_images(set_of(Format::folders, folder / "set")); },
                                 {folder / "set/ant/3.png"});
  EXPECT_EQ(listed(*load_images(follows).train), three);
  fs::create_symlink("gone.png", folder / "set/bee/4.png");
  fs::create_symlink("gone.txt", folder / "set/bee/notes.txt");
  const ImageSets dangling = load_images(follows);
  EXPECT_EQ(listed(*dangling.train),
            (std::vector<std::string>{"1.png: ant", "3.png: ant", "2.png: bee", "4.png: bee"}));
  test::expect_error<InputError>([&] { dangling.train->read(3); }, {folder / "set/bee/4.png", "No such file"});
}

TEST(ImageSet, ATrainMayBeAClass) {
  const test::TemporaryFolder folder;
  place_image(folder / "set/bus/1.png", "rgb8.png");
  place_image(folder / "set/train/2.png", "rgb8.png");
  const ImageOptions classes = detect_images(folder / "set");
  EXPECT_EQ(classes.train, folder / "set");
  EXPECT_EQ(load_images(classes).train->classes(), (std::vector<std::string>{"bus", "train"}));
  place_image(folder / "set/val/bus/3.png", "rgb8.png");
  EXPECT_EQ(detect_images(folder / "set").train, folder / "set/train");
  place_image(folder / "parts/train/bus/1.png", "rgb8.png");
  EXPECT_EQ(detect_images(folder / "parts").train, folder / "parts/train");
}

TEST(ImageSet, PartsMayHaveOtherNames) {
  const test::TemporaryFolder folder;
  for (const std::string part : {"Train", "Val", "Testing"})
    for (const char* image : {"/ant/1.png", "/bee/2.png"}) place_image(folder / ("set/" + part + image), "rgb8.png");
  const ImageOptions found = detect_images(folder / "set");
  EXPECT_EQ(found.train, folder / "set/Train");
  EXPECT_EQ(found.valid, folder / "set/Val");
  EXPECT_EQ(found.test, folder / "set/Testing");
  EXPECT_EQ(found.valid_fraction, 0.0);
}

TEST(ImageSet, ClassFoldersInTheOrderOfTheirNames) {
  const test::TemporaryFolder folder;
  place_image(folder / "train/bee/x.PNG", "rgb8.png");
  place_image(folder / "train/ant/2.jpg", "rgb_444.jpg");
  place_image(folder / "train/ant/deeper/1.jpeg", "grey.jpg");
  write_text(folder / "train/ant/notes.txt", "no image");
  place_image(folder / "test/bee/y.png", "rgb8.png");
  ImageOptions options = set_of(Format::folders, folder / "train");
  options.test = folder / "test";
  const ImageSets sets = load_images(options);
  EXPECT_EQ(listed(*sets.train), (std::vector<std::string>{"2.jpg: ant", "1.jpeg: ant", "x.PNG: bee"}));
  EXPECT_EQ(listed(*sets.test), (std::vector<std::string>{"y.png: bee"}));
  EXPECT_EQ(sets.valid, nullptr);
  EXPECT_EQ(sets.train->read(2)->width, 37);

  std::filesystem::create_directories(folder / "train/cow");
  test::expect_error<InputError>([&] { load_images(options); },
                                 {folder / "train/cow", "expected images of the class, found none"});
  std::filesystem::remove(folder / "train/cow");
  place_image(folder / "test/dog/y.png", "rgb8.png");
  test::expect_error<InputError>(
      [&] { load_images(options); },
      {folder / "test/dog", "class \"dog\" does not occur in the training images; known: 'ant', 'bee'"});
  options.train = folder / "nowhere";
  test::expect_error<InputError>([&] { load_images(options); }, {folder / "nowhere", "no such folder"});
}

TEST(ImageSet, SplitsAreDrawnFromEachClassBySeed) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train", 10);
  ImageOptions options = set_of(Format::folders, folder / "train");
  options.valid_fraction = 0.2;
  options.test_fraction = 0.3;
  const ImageSets sets = load_images(options);
  EXPECT_EQ(sets.train->size(), 15);
  std::set<std::string> names;
  for (const auto* part : {&sets.train, &sets.valid, &sets.test}) {
    std::map<int64_t, int> counts;
    for (int64_t i = 0; i < (*part)->size(); ++i) {
      ++counts[(*part)->label(i)];
      EXPECT_TRUE(names.insert((*part)->name(i)).second);
    }
    for (const auto& [label, count] : counts) EXPECT_EQ(count, (*part)->size() / 3) << label;
  }
  EXPECT_EQ(names.size(), 30u);
  EXPECT_EQ(listed(*load_images(options).valid), listed(*sets.valid));
  options.split_seed = 1;
  EXPECT_NE(listed(*load_images(options).valid), listed(*sets.valid));
  place_image(folder / "train/zebra/1.png", "rgb8.png");
  options.valid_fraction = 0.5;
  test::expect_error<InputError>([&] { load_images(options); },
                                 {"no image of class \"zebra\" is left for training", "1 image"});
}

TEST(ImageSet, IdxFilesPackedOrNot) {
  const test::TemporaryFolder folder;
  write_text(folder / "train-images-idx3-ubyte", idx_images(3, 2, 4));
  write_text(folder / "train-labels-idx1-ubyte", idx_labels(std::string("\x02\x00\x01", 3)));
  write_packed(folder / "t10k-images-idx3-ubyte.gz", idx_images(2, 2, 4));
  write_packed(folder / "t10k-labels-idx1-ubyte.gz", idx_labels(std::string("\x01\x01", 2)));
  const ImageSets sets = load_images(set_of(Format::idx, folder.path()));
  ASSERT_EQ(sets.train->size(), 3);
  EXPECT_EQ(sets.train->label(0), 2);
  EXPECT_EQ(sets.train->num_classes(), 3);
  const Image image = *sets.train->read(1);
  EXPECT_EQ(std::vector<uint8_t>(image.at(1, 3), image.at(1, 3) + 3), (std::vector<uint8_t>{15, 15, 15}));
  EXPECT_EQ(sets.test->size(), 2);
  EXPECT_EQ(sets.test->read(1)->bytes[3], 9);
  write_packed(folder / "t10k-labels-idx1-ubyte.gz", idx_labels(std::string("\x01\x05", 2)));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                 {"t10k-images-idx3-ubyte.gz: an image has class 5", "end at 2"});

  write_text(folder / "train-labels-idx1-ubyte", idx_labels("\x02"));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); }, {"1 labels for 3 images"});
  write_text(folder / "train-images-idx3-ubyte", idx_images(3, 2, 4).substr(0, 30));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                 {"expected 24 bytes after the header, found 14"});
  write_text(folder / "train-images-idx3-ubyte",
             std::string("\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                 {"its dimensions ask for more than"});
}

TEST(ImageSet, WhatAnIdxFileUnpacksToEndsWhereItsHeaderSays) {
  const test::TemporaryFolder folder;
  write_text(folder / "train-labels-idx1-ubyte", idx_labels(std::string("\x02\x00\x01", 3)));
  for (const std::string& more : {std::string(), std::string(1, '\0'), std::string(size_t{1} << 22, '\0')}) {
    write_packed(folder / "train-images-idx3-ubyte.gz", idx_images(3, 2, 4) + more);
    if (more.empty()) {
      EXPECT_EQ(load_images(set_of(Format::idx, folder.path())).train->size(), 3);
    } else {
      test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                     {"train-images-idx3-ubyte.gz", "expected 24 bytes after the header, found more"});
    }
  }
  write_packed(folder / "train-images-idx3-ubyte.gz", idx_images(3, 2, 4).substr(0, 39));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                 {"expected 24 bytes after the header, found 23"});
  write_packed(folder / "train-images-idx3-ubyte.gz", idx_images(3, 2, 4).substr(0, 15));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); }, {"expected an IDX file"});
}

TEST(ImageSet, SetsWithPartsOfTheirOwnTakeNoOthers) {
  for (const char* format : {"cifar10", "cifar100", "imagenet", "inaturalist", "places365", "sun397"}) {
    for (const char* part : {"valid", "test"}) {
      const base::Node node = base::Node::table({{"format", format}, {"train", "a"}, {part, "b"}});
      test::expect_error<InputError>([&] { base::read_options<ImageOptions>(node); },
                                     {part, "expected nothing", format, "found \"b\""});
    }
  }
}

TEST(ImageSet, ADamagedGzipFileIsRefused) {
  const test::TemporaryFolder folder;
  write_packed(folder / "train-images-idx3-ubyte.gz", idx_images(40, 8, 8));
  const std::string bytes = base::read_file(folder / "train-images-idx3-ubyte.gz");
  write_text(folder / "train-images-idx3-ubyte.gz", bytes.substr(0, bytes.size() / 2));
  test::expect_error<InputError>([&] { load_images(set_of(Format::idx, folder.path())); },
                                 {"train-images-idx3-ubyte.gz: gzip: "});
}

TEST(ImageSet, CifarInItsBinaryVersion) {
  const test::TemporaryFolder folder;
  const auto record = [](const std::string& labels, char red, char green, char blue) {
    return labels + std::string(1024, red) + std::string(1024, green) + std::string(1024, blue);
  };
  for (int i = 1; i <= 5; ++i)
    write_text(folder / ("data_batch_" + std::to_string(i) + ".bin"),
               record(std::string(1, static_cast<char>(i)), 1, 2, static_cast<char>(i)));
  write_text(folder / "test_batch.bin", record("\x09", 7, 8, 9));
  write_text(folder / "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const ImageSets ten = load_images(set_of(Format::cifar10, folder.path()));
  EXPECT_EQ(ten.train->size(), 5);
  EXPECT_EQ(ten.train->classes()[static_cast<size_t>(ten.train->label(4))], "f");
  EXPECT_EQ(ten.train->read(2)->bytes[5], 3);
  EXPECT_EQ(ten.test->label(0), 9);

  write_text(folder / "train.bin", record("\x03\x40", 1, 2, 3) + record(std::string("\x05\x63"), 1, 2, 3));
  write_text(folder / "test.bin", record(std::string("\0\0", 2), 1, 2, 3));
  ImageOptions hundred = set_of(Format::cifar100, folder.path());
  EXPECT_EQ(load_images(hundred).train->label(1), 99);
  hundred.labels = ImageOptions::Labels::coarse;
  EXPECT_EQ(load_images(hundred).train->label(1), 5);
  EXPECT_EQ(load_images(hundred).train->num_classes(), 20);
  write_text(folder / "train.bin", "short");
  test::expect_error<InputError>([&] { load_images(hundred); }, {"train.bin", "records of 3074 bytes, found 5 bytes"});
}

TEST(ImageSet, CsvWithNamesOrNumbers) {
  const test::TemporaryFolder folder;
  place_image(folder / "pictures/one, two.png", "rgb8.png");
  place_image(folder / "pictures/b.jpg", "rgb_444.jpg");
  write_text(folder / "train.csv", "path,label\n\"pictures/one, two.png\",zebra\npictures/b.jpg,ape\n");
  const ImageSets sets = load_images(set_of(Format::csv, folder / "train.csv"));
  EXPECT_EQ(listed(*sets.train), (std::vector<std::string>{"one, two.png: zebra", "b.jpg: ape"}));
  EXPECT_EQ(sets.train->classes(), (std::vector<std::string>{"ape", "zebra"}));
  EXPECT_EQ(sets.train->read(0)->width, 37);
  write_text(folder / "numbers.csv", "pictures/b.jpg,10\npictures/b.jpg,9\n");
  EXPECT_EQ(load_images(set_of(Format::csv, folder / "numbers.csv")).train->classes(),
            (std::vector<std::string>{"9", "10"}));
  for (const char* header : {"\xEF\xBB\xBFpath,label", "image_id,kind", "id,class"}) {
    write_text(folder / "headed.csv", std::string(header) + "\r\npictures/b.jpg,10\r\npictures/b.jpg,9\r\n");
    EXPECT_EQ(load_images(set_of(Format::csv, folder / "headed.csv")).train->classes(),
              (std::vector<std::string>{"9", "10"}))
        << header;
  }
  // The images lie in a folder that is called as the header's first word.
  place_image(folder / "image/b.jpg", "rgb_444.jpg");
  write_text(folder / "folder.csv", "image,label\nimage/b.jpg,10\nimage/b.jpg,9\n");
  EXPECT_EQ(load_images(set_of(Format::csv, folder / "folder.csv")).train->size(), 2);
  // An image that is missing is no header.
  write_text(folder / "missing.csv", "pictures/gone.jpg,ape\npictures/b.jpg,zebra\n");
  EXPECT_EQ(load_images(set_of(Format::csv, folder / "missing.csv")).train->size(), 2);
  write_text(folder / "bad.csv", "pictures/b.jpg,10\npictures/b.jpg\n");
  test::expect_error<InputError>([&] { load_images(set_of(Format::csv, folder / "bad.csv")); },
                                 {"bad.csv:2:1", "expected PATH,LABEL, found 1 fields"});
  write_text(folder / "bad.csv", "pictures/b.jpg,10\npictures/b.jpg,\n");
  test::expect_error<InputError>([&] { load_images(set_of(Format::csv, folder / "bad.csv")); },
                                 {"bad.csv:2:1", "found an empty label"});
}

TEST(ImageSet, KeptImagesAreReadOnce) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "train", 2);
  ImageOptions options = set_of(Format::folders, folder / "train");
  options.keep_decoded = 1;
  const ImageSets sets = load_images(options);
  const Image first = *sets.train->read(0);
  const std::string path = sets.train->name(0);
  std::filesystem::remove(path);
  EXPECT_EQ(*sets.train->read(0), first);
  std::filesystem::remove(sets.train->name(1));
  EXPECT_THROW(sets.train->read(1), InputError);
}

/// Image i has i + 1 rows of 100 pixels, all of them of colour i.
class CountedImages final : public ImageSource {
 public:
  int64_t size() const override { return 40; }
  std::shared_ptr<const Image> read(int64_t i) const override {
    ++reads;
    auto image = std::make_shared<Image>(i + 1, 100);
    std::fill(image->bytes.begin(), image->bytes.end(), static_cast<uint8_t>(i));
    return image;
  }
  std::string name(int64_t i) const override { return std::to_string(i); }
  ImageHeader header(int64_t i) const override { return {"made", i + 1, 100}; }
  mutable int reads = 0;
};

TEST(ImageSet, ImagesAreKeptWhileThereIsRoom) {
  const auto source = std::make_shared<CountedImages>();
  const auto kept = keep_decoded(source, 300 * (40 + 39 + 2));
  for (int round = 0; round < 2; ++round) {
    for (const int64_t i : {39, 0, 38, 37, 10}) EXPECT_EQ(*kept->read(i), *CountedImages().read(i)) << i;
    EXPECT_EQ(source->reads, round == 0 ? 5 : 7);  // there was no room for 37 and 10
  }
  EXPECT_EQ(keep_decoded(source, 0), source);
}

TEST(ImageSet, FingerprintsFollowNamesAndLabelsNotTheFolder) {
  const test::TemporaryFolder folder;
  make_class_folders(folder / "one", 2);
  make_class_folders(folder / "two", 2);
  const auto sum = [&](const std::string& path) {
    return load_images(set_of(Format::folders, path)).train->fingerprint();
  };
  EXPECT_EQ(sum(folder / "one"), sum(folder / "two"));
  std::filesystem::rename(folder / "two/cat", folder / "two/bat");
  EXPECT_NE(sum(folder / "one"), sum(folder / "two"));
  write_text(folder / "a.csv", "x.jpg,1\ny.jpg,2\n");
  write_text(folder / "b.csv", "x.jpg,2\ny.jpg,1\n");
  EXPECT_NE(load_images(set_of(Format::csv, folder / "a.csv")).train->fingerprint(),
            load_images(set_of(Format::csv, folder / "b.csv")).train->fingerprint());
}

}  // namespace
}  // namespace mnemo::data
