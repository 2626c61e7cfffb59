#include "data/batch.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"

namespace mnemo::data {
namespace {

struct Objects {
  Ragged boxes;
  at::Tensor sizes;
  template <class F>
  void visit(F&& f) {
    f("boxes", boxes);
    f("sizes", sizes);
  }
};

/// Four images with 2, 0, 3 and 1 boxes; box n has the coordinates 4 n to 4 n + 3.
Batch images() {
  Batch batch;
  batch.input.pixels = at::arange(4).view({4, 1, 1, 1});
  batch.reset = at::arange(4) == 1;
  batch.targets = Objects{{at::arange(24).view({6, 4}), {2, 0, 3, 1}}, at::arange(8).view({4, 2})};
  batch.num_targets = 6;
  return batch;
}

TEST(Batch, RowsTakeTheirBoxesAlong) {
  const Batch whole = images();
  EXPECT_EQ(num_rows(whole), 4);
  const Batch part = rows(whole, 1, 2);
  EXPECT_EQ(num_rows(part), 2);
  EXPECT_TRUE(at::equal(part.input.pixels.flatten(), at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(part.reset, at::arange(2) == 0));
  EXPECT_EQ(part.num_targets, 6) << "of the whole batch";
  const auto& objects = part.targets.as<Objects>();
  EXPECT_EQ(objects.boxes.counts, (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(at::equal(objects.boxes.values, at::arange(8, 20).view({3, 4})));
  EXPECT_TRUE(at::equal(objects.sizes, at::tensor({2, 3, 4, 5}, at::kLong).view({2, 2})));
  EXPECT_EQ(rows(part, 0, 1).targets.as<Objects>().boxes.values.size(0), 0);
  EXPECT_EQ(whole.targets.as<Objects>().boxes.values.size(0), 6) << "the batch itself stays";
}

TEST(Batch, EveryFieldMovesToADevice) {
  const Batch moved = to(images(), at::kMeta);
  const auto& objects = moved.targets.as<Objects>();
  for (const at::Tensor& tensor : {moved.input.pixels, moved.reset, objects.boxes.values, objects.sizes})
    EXPECT_TRUE(tensor.is_meta());
  EXPECT_EQ(objects.boxes.counts.size(), 4U);
  Batch without = images();
  without.reset.fill_(false);
  EXPECT_FALSE(to(without, at::kMeta).reset.defined()) << "no row is reset";
}

TEST(Batch, FieldsHaveTheSameRowsAndTargetsTheTasksType) {
  Batch batch = images();
  EXPECT_THROW(batch.targets.as<TokenTargets>(), base::InternalError);
  EXPECT_THROW(Batch().targets.as<TokenTargets>(), base::InternalError);
  batch.input.pixels = at::zeros({3, 1, 1, 1});
  EXPECT_THROW(num_rows(batch), base::InternalError);
}

}  // namespace
}  // namespace mnemo::data
