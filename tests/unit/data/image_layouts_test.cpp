// Sets as they are published: ImageNet, Tiny ImageNet, iNaturalist, Places365, SUN397.
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/images/image_describe.h"
#include "data/images/image_set.h"
#include "image_files.h"
#include "tests/support/expect_error.h"

namespace mnemo::data {
namespace {

using base::InputError;

TEST(ImageSet, ImageNetAsItIsUnpacked) {
  const test::TemporaryFolder folder;
  for (const char* root : {"kaggle/ILSVRC/Data/CLS-LOC/train/", "sorted/train/", "large/"}) {
    place_image(folder / (root + std::string("n01440764/n01440764_1.JPEG")), "rgb_444.jpg");
    place_image(folder / (root + std::string("n01443537/n01443537_2.JPEG")), "grey.jpg");
  }
  place_image(folder / "kaggle/ILSVRC/Data/CLS-LOC/val/ILSVRC2012_val_00000001.JPEG", "rgb_444.jpg");
  test::expect_error<InputError>([&] { load_images(set_of(Format::imagenet, folder / "kaggle")); },
                                 {"expected LOC_val_solution.csv in"});
  write_text(folder / "kaggle/LOC_val_solution.csv",
             "ImageId,PredictionString\nILSVRC2012_val_00000001,n01443537 1 2 3 4 n01443537 5 6 7 8\n");
  const ImageSets kaggle = load_images(set_of(Format::imagenet, folder / "kaggle"));
  EXPECT_EQ(listed(*kaggle.valid), (std::vector<std::string>{"ILSVRC2012_val_00000001.JPEG: n01443537"}));
  EXPECT_EQ(kaggle.valid->read(0)->width, 37);
  place_image(folder / "sorted/val/n01443537/v.JPEG", "rgb_444.jpg");
  EXPECT_EQ(load_images(set_of(Format::imagenet, folder / "sorted")).valid->label(0), 1);
  const ImageSets large = load_images(set_of(Format::imagenet, folder / "large"));
  EXPECT_EQ(large.train->size(), 2);
  EXPECT_EQ(large.valid, nullptr);
}

TEST(ImageSet, TinyImageNetsValidationImagesLieInOneFolder) {
  const test::TemporaryFolder folder;
  place_image(folder / "train/n01443537/images/n01443537_0.JPEG", "rgb_444.jpg");
  place_image(folder / "train/n01629819/images/n01629819_0.JPEG", "grey.jpg");
  write_text(folder / "train/n01443537/n01443537_boxes.txt", "n01443537_0.JPEG\t0\t10\t63\t58\n");
  place_image(folder / "val/images/val_0.JPEG", "rgb_444.jpg");
  place_image(folder / "val/images/val_1.JPEG", "grey.jpg");
  place_image(folder / "test/images/test_0.JPEG", "grey.jpg");
  write_text(folder / "val/val_annotations.txt",
             "val_0.JPEG\tn01629819\t0\t32\t44\t62\nval_1.JPEG\tn01443537\t52\t55\t57\t59\n"
             "val_2.JPEG\tn03444034\t1\t2\t3\t4\n");  // not in this excerpt
  ImageOptions options = detect_images(folder.path());
  EXPECT_EQ(options.format, Format::imagenet);
  options.image_size = {16, 16};
  const ImageSets sets = load_images(options);
  EXPECT_EQ(listed(*sets.train),
            (std::vector<std::string>{"n01443537_0.JPEG: n01443537", "n01629819_0.JPEG: n01629819"}));
  EXPECT_EQ(listed(*sets.valid), (std::vector<std::string>{"val_0.JPEG: n01629819", "val_1.JPEG: n01443537"}));
  EXPECT_EQ(sets.valid->read(0)->width, 37);
  write_text(folder / "val/val_annotations.txt", "val_0.JPEG n01629819\n");
  test::expect_error<InputError>([&] { load_images(options); },
                                 {"val_annotations.txt:1:1", "expected IMAGE<tab>CLASS"});
  write_text(folder / "val/val_annotations.txt", "val_0.JPEG\tn01629819\t0\t32\t44\t62\n");
  test::expect_error<InputError>([&] { load_images(options); },
                                 {"val_annotations.txt: expected a line of", "val/images/val_1.JPEG, found none"});
}

TEST(ImageSet, INaturalistFromItsLists) {
  const test::TemporaryFolder folder;
  place_image(folder / "train_val2018/Aves/7/x.jpg", "rgb_444.jpg");
  write_text(
      folder / "train2018.json",
      R"({"images":[{"id":5,"file_name":"train_val2018/Aves/7/x.jpg"}],"annotations":[{"id":1,"image_id":5,"category_id":7}],)"
      R"("categories":[{"id":7,"name":"Parus major"},{"id":2,"name":"Apis"}]})");
  const ImageSets sets = load_images(set_of(Format::inaturalist, folder.path()));
  EXPECT_EQ(listed(*sets.train), (std::vector<std::string>{"x.jpg: 7 Parus major"}));
  EXPECT_EQ(sets.train->num_classes(), 2);
  EXPECT_EQ(sets.train->read(0)->width, 37);
}

// The list of 2018 has 437,513 images; parsed as a tree, it would have ten values for each.
TEST(ImageSet, INaturalistsListsMayBeLong) {
  const test::TemporaryFolder folder;
  constexpr int kImages = 30'000;
  std::string images, annotations;
  for (int i = 0; i < kImages; ++i) {
    const char* comma = i == 0 ? "" : ",";
    images += fmt::format(
        R"({}{{"license":3,"file_name":"train_val2018/Plantae/{}/{:032x}.jpg","rights_holder":"Somebody","height":600,"id":{},"width":800}})",
        comma, i % 7, i, 1000 + i);
    annotations += fmt::format(R"({}{{"image_id":{},"category_id":{},"id":{}}})", comma, 1000 + kImages - 1 - i,
                               (kImages - 1 - i) % 7, i);
  }
  std::string categories;
  for (int c = 0; c < 7; ++c)
    categories += fmt::format(R"({}{{"supercategory":"Plantae","name":"plant {}","id":{}}})", c == 0 ? "" : ",", c, c);
  write_text(folder / "train2018.json", R"({"info":{"year":2018,"images":[{"id":"not one of them"}]},"images":[)" +
                                            images + R"(],"licenses":[{"id":3,"url":"x"}],"annotations":[)" +
                                            annotations + R"(],"categories":[)" + categories + "]}");
  EXPECT_GT(base::file_size(folder / "train2018.json"), uint64_t{4} << 20);
  const ImageSets sets = load_images(set_of(Format::inaturalist, folder.path()));
  ASSERT_EQ(sets.train->size(), kImages);
  EXPECT_EQ(sets.train->num_classes(), 7);
  for (const int64_t i : {0, 8, 29'999}) {
    EXPECT_EQ(sets.train->label(i), i % 7);
    EXPECT_EQ(sets.train->name(i), folder / fmt::format("train_val2018/Plantae/{}/{:032x}.jpg", i % 7, i));
  }
}

TEST(ImageSet, WrongListsOfINaturalistAreRefusedByName) {
  const test::TemporaryFolder folder;
  const std::string image = R"("images":[{"id":5,"file_name":"x.jpg"}],)",
                    annotation = R"("annotations":[{"image_id":5,"category_id":7}],)",
                    category = R"("categories":[{"id":7,"name":"a"}])";
  const auto refuse = [&](const std::string& text, std::initializer_list<std::string> parts) {
    write_text(folder / "train2018.json", text);
    const std::string message = test::expect_error<InputError>(
        [&] { load_images(set_of(Format::inaturalist, folder.path())); }, parts);
    EXPECT_NE(message.find(folder / "train2018.json"), std::string::npos) << message;
  };
  refuse("", {"parse error"});
  refuse("{" + image + annotation, {"line 1", "unexpected end of input"});
  refuse("[1]", {"expected a table, found a list"});
  refuse("{" + image + category + "}", {"expected the key 'annotations', found none"});
  refuse("{" + image + image + annotation + category + "}", {"key 'images' appears twice"});
  refuse("{" + image + R"("annotations":7,)" + category + "}", {"'annotations': expected a list, found 7"});
  refuse("{" + image + R"("annotations":[7],)" + category + "}", {"'annotations[0]': expected a table, found 7"});
  refuse(R"({"images":[{"id":5,"file_name":"x.jpg"},{"id":6}],)" + annotation + category + "}",
         {"'images[1]': expected the key 'file_name', found none"});
  refuse(R"({"images":[{"id":5.5,"file_name":"x.jpg"}],)" + annotation + category + "}",
         {"'images[0]': 'id': expected an integer, found 5.5"});
  refuse(R"({"images":[{"id":5,"file_name":["x.jpg"]}],)" + annotation + category + "}",
         {"'images[0]': 'file_name': expected a string, found a list"});
  refuse("{" + image + R"("annotations":[],)" + category + "}", {"image 5: no annotation is of it"});
  refuse("{" + image + R"("annotations":[{"image_id":5,"category_id":8}],)" + category + "}",
         {"image 5: category 8 is not among the categories"});
  refuse("{" + image + R"("annotations":[{"image_id":5,"category_id":7},{"image_id":5,"category_id":8}],)" + category +
             "}",
         {"image 5: expected one category, found 7 and 8"});
}

TEST(ImageSet, Places365FromItsLists) {
  const test::TemporaryFolder folder;
  write_text(folder / "categories_places365.txt", "/a/airfield 0\n/b/bow_window/indoor 1\n");
  write_text(folder / "places365_train_standard.txt",
             "/b/bow_window/indoor/00000001.jpg 1\n/a/airfield/00000002.jpg 0\n");
  write_text(folder / "places365_val.txt", "Places365_val_00000001.jpg 1\n");
  place_image(folder / "data_256/b/bow_window/indoor/00000001.jpg", "rgb_444.jpg");
  place_image(folder / "val_256/Places365_val_00000001.jpg", "rgb_444.jpg");
  const ImageSets sets = load_images(set_of(Format::places365, folder.path()));
  EXPECT_EQ(listed(*sets.train),
            (std::vector<std::string>{"00000001.jpg: b/bow_window/indoor", "00000002.jpg: a/airfield"}));
  EXPECT_EQ(sets.train->read(0)->width, 37);
  EXPECT_EQ(sets.valid->read(0)->width, 37);
  EXPECT_EQ(sets.test, nullptr);
  // As in the papers: a part of the training images chooses, the validation part measures.
  ImageOptions chosen = set_of(Format::places365, folder.path());
  chosen.valid_fraction = 0.5;
  write_text(folder / "places365_train_standard.txt",
             "/b/bow_window/indoor/00000001.jpg 1\n/b/bow_window/indoor/00000003.jpg 1\n");
  const ImageSets split = load_images(chosen);
  EXPECT_EQ(split.train->size(), 1);
  EXPECT_EQ(split.valid->size(), 1);
  EXPECT_EQ(listed(*split.test), (std::vector<std::string>{"Places365_val_00000001.jpg: b/bow_window/indoor"}));
  chosen.test_fraction = 0.1;
  test::expect_error<InputError>([&] { load_images(chosen); },
                                 {"'data.test_fraction': expected 0, because the set already has such a part"});
  write_text(folder / "places365_val.txt", "Places365_val_00000001.jpg 2\n");
  test::expect_error<InputError>([&] { load_images(set_of(Format::places365, folder.path())); },
                                 {"places365_val.txt:1:1", "expected a class of 0 to 1, found \"2\""});
  write_text(folder / "places365_val.txt", "Places365_val_00000001.jpg\n");
  test::expect_error<InputError>([&] { load_images(set_of(Format::places365, folder.path())); },
                                 {"places365_val.txt:1:1", "expected a class of 0 to 1, found \"\""});
}

TEST(ImageSet, Sun397ByItsPartitions) {
  const test::TemporaryFolder folder;
  place_image(folder / "a/abbey/sun_1.jpg", "rgb_444.jpg");
  place_image(folder / "b/bakery/shop/sun_2.jpg", "grey.jpg");
  EXPECT_EQ(listed(*load_images(set_of(Format::sun397, folder.path())).train),
            (std::vector<std::string>{"sun_1.jpg: a/abbey", "sun_2.jpg: b/bakery/shop"}));
  write_text(folder / "Partitions/Training_02.txt", "/a/abbey/sun_1.jpg\n/b/bakery/shop/sun_2.jpg\n");
  write_text(folder / "Partitions/Testing_02.txt", "/b/bakery/shop/sun_2.jpg\n");
  ImageOptions options = set_of(Format::sun397, folder.path());
  options.partition = 2;
  const ImageSets sets = load_images(options);
  EXPECT_EQ(sets.train->size(), 2);
  EXPECT_EQ(listed(*sets.test), (std::vector<std::string>{"sun_2.jpg: b/bakery/shop"}));
  EXPECT_EQ(sets.test->read(0)->width, 37);
  options.partition = 3;
  test::expect_error<InputError>([&] { load_images(options); }, {"Training_03.txt"});
}

}  // namespace
}  // namespace mnemo::data
