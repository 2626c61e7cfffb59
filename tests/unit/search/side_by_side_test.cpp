#include "search/side_by_side.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "models/pair_model.h"
#include "tests/support/pair_models.h"

namespace mnemo::search {
namespace {

std::unique_ptr<models::PairModel> model_with_memory() {
  models::ModelOptions options = test::pair_options();
  options.backbone.pairs().encoder.memory = {models::ModelOptions::memory_types().read(
      base::Node::table({{"type", "grc"}, {"cache_len", 3}, {"lifetime", "sequence"}}))};
  return models::build_as<models::PairModel>(options, 3, at::kDouble);
}

at::Tensor source_of(const std::vector<int64_t>& pairs) {
  std::vector<at::Tensor> rows;
  for (const int64_t pair : pairs) rows.push_back(at::tensor({4 + pair, 5 + pair, int64_t{2}}, at::kLong));
  return at::stack(rows);
}

// Each pair reads the same whatever documents are beside its own, and the open document goes on.
TEST(SideBySide, DocumentsDoNotDependOnTheirNeighbours) {
  const at::NoGradGuard no_grad;
  const auto model = model_with_memory();
  const std::vector<std::vector<int64_t>> documents = {{0, 1}, {2, 3, 4, 5}, {}, {6}, {7, 8}};
  const auto walk = [&](const std::vector<std::vector<int64_t>>& some, int64_t rows, const core::State& first,
                        std::map<int64_t, at::Tensor>& read) {
    return side_by_side(
        *model, some, rows,
        [&](const std::vector<int64_t>& pairs, const core::State& before) {
          EXPECT_LE(pairs.size(), static_cast<size_t>(rows));
          core::State after = model->read_source(source_of(pairs), {}, core::Mode::evaluate, before);
          const at::Tensor encoded = models::SourceSide::output(after.child("source")).rows;
          for (size_t i = 0; i < pairs.size(); ++i) read[pairs[i]] = encoded[static_cast<int64_t>(i)];
          return after;
        },
        first);
  };
  std::map<int64_t, at::Tensor> alone, together, cut;
  for (const auto& document : documents) walk({document}, 1, {}, alone);
  const core::State end = walk(documents, 3, {}, together);
  ASSERT_EQ(together.size(), 9u);
  for (const auto& [pair, rows] : alone)
    EXPECT_LT((rows - together.at(pair)).abs().max().item<double>(), 1e-12) << pair;
  // The same, cut inside the second and the last document.
  core::State open = walk({{0, 1}, {2, 3}}, 2, {}, cut);
  open = walk({{4, 5}, {}, {6}, {7}}, 2, open, cut);
  open = walk({{8}}, 2, open, cut);
  for (const auto& [pair, rows] : alone) EXPECT_LT((rows - cut.at(pair)).abs().max().item<double>(), 1e-12) << pair;
  for (const auto& [field, tensor] : end.child("source").child("encoder").fields()) {
    const auto other = open.child("source").child("encoder").fields();
    const auto same = std::find_if(other.begin(), other.end(),
                                   [&](const auto& x) { return x.first.path == field.path; });
    ASSERT_NE(same, other.end()) << field.path;
    EXPECT_LT((same->second - tensor).abs().to(at::kDouble).max().item<double>(), 1e-12) << field.path;
  }
  std::map<int64_t, at::Tensor> empty;
  walk({{3}}, 1, {}, empty);
  EXPECT_GT((empty.at(3) - alone.at(3)).abs().max().item<double>(), 1e-6) << "the memory matters";
}

}  // namespace
}  // namespace mnemo::search
