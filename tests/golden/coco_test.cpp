// COCO's evaluation and its masks against the numbers of pycocotools in tests/golden/data/coco_eval.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/file_io.h"
#include "base/node.h"
#include "tests/support/temporary_folder.h"
#include "tests/verify/golden.h"

namespace mnemo {
namespace {

namespace fs = std::filesystem;
constexpr const char* kCocoFolder = MNEMO_SOURCE_DIR "/tests/golden/data/coco_eval";
constexpr base::ReadLimits kLimits{.max_bytes = size_t{64} << 20, .max_depth = 8, .max_values = 4'000'000};

std::vector<std::string> sets() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kCocoFolder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Coco : public testing::TestWithParam<std::string> {};

TEST_P(Coco, HasTheNumbersOfPycocotools) {
  const verify::GoldenReport report = verify::verify_golden(std::string(kCocoFolder) + "/" + GetParam());
  ASSERT_FALSE(report.groups.empty());
  for (const auto& group : report.groups)
    EXPECT_LE(group.error, group.tolerance) << group.name << ", worst " << group.worst;
}

/// Changes every number and text below the node but for these keys; returns how many.
int64_t change(base::Node& node, const std::set<std::string>& except) {
  int64_t count = 0;
  if (node.is_table()) {
    for (auto& member : node.members()) count += except.contains(member.key) ? 0 : change(member.value, except);
  } else if (node.is_array()) {
    for (base::Node& item : node.items()) count += change(item, except);
  } else if (node.is_int() || node.is_real()) {
    node = base::Node(node.as_double() + 1.0);
    ++count;
  }
  return count;
}

// Every number of expect.json is compared.
TEST_P(Coco, EveryNumberIsCompared) {
  if (GetParam() == "rle.json") GTEST_SKIP() << "below";
  const test::TemporaryFolder folder;
  for (const auto& entry : fs::directory_iterator(std::string(kCocoFolder) + "/" + GetParam()))
    fs::create_symlink(entry.path(), folder / entry.path().filename().string());
  const std::string path = folder / "expect.json";
  base::Node expected = base::parse_json(base::read_file(path), path, kLimits);
  const int64_t changed = change(expected, {"tolerance", "category_id"});
  fs::remove(path);
  base::write_file_atomic(path, base::to_json(expected));
  int64_t beyond = 0;
  for (const auto& group : verify::verify_golden(folder.path()).groups)
    beyond += static_cast<int64_t>(group.beyond.size());
  EXPECT_EQ(beyond, changed);
}

// Each value of a mask is compared: changed one at a time in an entry of each list.
TEST(CocoMasks, EveryValueIsCompared) {
  const std::string original = std::string(kCocoFolder) + "/rle.json";
  const base::Node masks = base::parse_json(base::read_file(original), original, kLimits);
  const test::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::vector<std::string>>> keys = {
      {"masks", {"counts", "compressed", "area", "bbox"}},
      {"large", {"runs", "compressed", "area", "bbox"}},
      {"mask_iou", {"iou"}},
      {"box_iou", {"iou"}},
      {"merge", {"union", "intersection"}},
      {"polygons", {"parts", "compressed", "counts", "area", "bbox"}}};
  for (const auto& [list, names] : keys) {
    for (const std::string& name : names) {
      base::Node copy = masks;
      base::Node* value = copy.find(list)->items().back().find(name);
      ASSERT_NE(value, nullptr) << list << "." << name;
      while (value->is_array()) value = &value->items().back();
      *value = value->is_string() ? base::Node(value->as_string() + "0")
               : value->is_int()  ? base::Node(value->as_int() + 1)
                                  : base::Node(value->as_double() + 1);
      base::write_file_atomic(folder / "rle.json", base::to_json(copy));
      EXPECT_FALSE(verify::verify_golden(folder / "rle.json").passed()) << list << "." << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, Coco, testing::ValuesIn(sets()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

}  // namespace
}  // namespace mnemo
