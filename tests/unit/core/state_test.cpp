#include "core/state.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::core {
namespace {

using test::expect_error;
using test::Numbers;

struct Cache {
  at::Tensor rows, valid;
  void visit(auto&& f) {
    f("rows", rows, "B M D");
    f("valid", valid, "B M");
  }
};
struct Shared {
  at::Tensor cache;
  void visit(auto&& f) { f("cache", cache, "1 N"); }
};

State sample(int64_t batch, int64_t past) {
  Numbers numbers(5);
  return State::list({{"cache", Cache{numbers.normal({batch, past, 2}), at::ones({batch, past}, at::kBool)}},
                      {"layers", State::list({{"0", Shared{numbers.normal({1, 3})}}, {"1", Cache{}}})},
                      {"nothing", State()}});
}

std::vector<std::string> paths(const State& state) {
  std::vector<std::string> found;
  for (const auto& [field, tensor] : state.fields()) found.push_back(field.path);
  return found;
}

TEST(Field, FindsItsDimensions) {
  const Field field{"x", "B H M d"};
  EXPECT_EQ(field.dim("B"), 0);
  EXPECT_EQ(field.dim("M"), 2);
  EXPECT_EQ(field.dim("d"), 3);
  EXPECT_EQ(field.dim("D"), -1);
  EXPECT_TRUE(field.per_sequence());
  EXPECT_FALSE((Field{"x", "1 BH M"}.per_sequence()));
  EXPECT_EQ((Field{"x", ""}.dim("B")), -1);
}

TEST(State, NamesItsTensorsByPath) {
  const State state = sample(2, 3);
  EXPECT_EQ(paths(state), (std::vector<std::string>{"cache.rows", "cache.valid", "layers.0.cache"}));
  EXPECT_EQ(state.child("cache").as<Cache>().rows.size(1), 3);
  EXPECT_TRUE(state.child("nothing").empty());
  EXPECT_TRUE(state.child("absent").empty());
  EXPECT_TRUE(State().child("x").empty());
  EXPECT_FALSE(State().as<Cache>().rows.defined());
  EXPECT_TRUE(State().fields().empty());
}

TEST(State, OfAnotherTypeIsRefused) {
  expect_error<base::InputError>([] { sample(1, 1).as<Cache>(); }, {"another mechanism"});
  expect_error<base::InputError>([] { sample(1, 1).child("cache").as<Shared>(); }, {"another mechanism"});
  expect_error<base::InputError>([] { sample(1, 1).child("cache").child("rows"); }, {"list of states"});
}

TEST(State, MapLeavesTheOriginalAlone) {
  const State state = sample(2, 3);
  const State doubled = state.map([](const Field& field, const at::Tensor& tensor) {
    return field.path == "layers.0.cache" ? tensor * 2 : tensor;
  });
  EXPECT_FALSE(doubled.child("layers").child("1").as<Cache>().rows.defined());
  EXPECT_TRUE(at::equal(doubled.child("layers").child("0").as<Shared>().cache,
                        state.child("layers").child("0").as<Shared>().cache * 2));
  int visited = 0;
  const State same = state.map_declared([&](const Field&, const at::Tensor& tensor) {
    ++visited;
    return tensor;
  });
  EXPECT_EQ(visited, 5);
  EXPECT_EQ(paths(same), paths(state));
}

TEST(ConcatBatch, PadsOnTheLeftAndRefusesOtherFields) {
  const State joined = concat_batch({sample(1, 1), sample(2, 3)});
  const State joined_cache = joined.child("cache");
  const auto& cache = joined_cache.as<Cache>();
  EXPECT_EQ(cache.rows.sizes(), at::IntArrayRef({3, 3, 2}));
  EXPECT_TRUE(at::equal(cache.valid.to(at::kLong), at::tensor({0, 0, 1, 1, 1, 1, 1, 1, 1}, at::kLong).view({3, 3})));
  EXPECT_EQ(test::largest(cache.rows[0].narrow(0, 0, 2)), 0.0);
  const State other = State::list({{"cache", Cache{at::zeros({1, 1, 2}), {}}}});
  expect_error<base::ShapeError>([&] { concat_batch({sample(1, 1), other}); }, {"same fields", "3", "1"});
  const State renamed = State::list({{"kept", sample(1, 1).child("cache")}, {"layers", sample(1, 1).child("layers")}});
  expect_error<base::ShapeError>([&] { concat_batch({sample(1, 1), renamed}); }, {"cache.rows", "kept.rows"});
  expect_error<base::InternalError>([] { concat_batch({}); }, {"no states"});
}

TEST(ResetRows, KeepsTheGradientOfTheInitialState) {
  const at::Tensor start = at::ones({2}, at::kDouble).set_requires_grad(true),
                   past = at::zeros({3, 1, 2}, at::kDouble).set_requires_grad(true);
  const State initial = Cache{start.expand({3, 1, 2}), at::ones({3, 1}, at::kBool)};
  const State state = Cache{past * 1.0, at::ones({3, 1}, at::kBool)};
  const State found = reset_rows(state, at::tensor({1, 0, 1}).to(at::kBool), initial);
  (found.as<Cache>().rows * at::arange(1, 4, at::kDouble).view({3, 1, 1})).sum().backward();
  EXPECT_TRUE(at::equal(start.grad(), at::full({2}, 4.0, at::kDouble)));
  EXPECT_TRUE(at::equal(past.grad().select(2, 0).squeeze(1), at::tensor({0.0, 2.0, 0.0}, at::kDouble)));
  EXPECT_TRUE(reset_rows(state, at::zeros({3}, at::kBool), State()).as<Cache>().rows.is_same(state.as<Cache>().rows));
}

TEST(ResetRows, PadsTheShorterPastAndRefusesOtherSizes) {
  const auto cache = [](int64_t batch, int64_t past, int64_t dim, double value) {
    return State(Cache{at::full({batch, past, dim}, value, at::kDouble), at::ones({batch, past}, at::kBool)});
  };
  const at::Tensor first = at::tensor({1, 0}).to(at::kBool);
  const State found = reset_rows(cache(2, 1, 2, 3.0), first, cache(2, 4, 2, 5.0));
  const at::Tensor rows = found.as<Cache>().rows.select(2, 0);
  EXPECT_TRUE(at::equal(rows, at::tensor({5., 5., 5., 5., 0., 0., 0., 3.}, at::kDouble).view({2, 4})));
  expect_error<base::ShapeError>([&] { reset_rows(cache(2, 1, 2, 3.0), first, cache(2, 1, 1, 5.0)); },
                                 {"reset_rows", "rows", "[2, 1, 2]", "[2, 1, 1]"});
  const State single = Cache{at::zeros({2, 1, 2}), at::ones({2, 1}, at::kBool)};
  expect_error<base::ShapeError>([&] { reset_rows(cache(2, 1, 2, 3.0), first, single); }, {"Double", "Float"});
}

TEST(Load, NamesWhatDoesNotFit) {
  const State like = sample(2, 3);
  const auto with = [&](const std::string& path, const at::Tensor& tensor) {
    std::map<std::string, at::Tensor> file;
    for (const auto& [name, stored] : save(like)) file[name] = stored;
    file[path] = tensor;
    load(like, [&](const std::string& name) { return file.contains(name) ? file[name] : at::Tensor(); });
  };
  with("unknown", at::zeros({1}));  // unknown tensors are left to the caller
  with("layers.1.valid", at::ones({2, 4}, at::kBool));
  expect_error<base::InputError>([&] { with("cache.rows", at::Tensor()); }, {"cache.rows", "none"});
  expect_error<base::InputError>(
      [&] {
        with("cache.rows", at::zeros({2, 3, 5}, at::kDouble));
      },
      {"cache.rows", "B M D", "[2, 3, 5]"});
  expect_error<base::InputError>(
      [&] {
        with("cache.rows", at::zeros({2, 3, 2}, at::kFloat));
      },
      {"cache.rows", "Double", "Float"});
  expect_error<base::InputError>([&] { with("cache.rows", at::zeros({2, 3}, at::kDouble)); }, {"cache.rows", "[2, 3]"});
  expect_error<base::InputError>(
      [&] {
        with("cache.valid", at::ones({5, 3}, at::kBool));
      },
      {"cache.valid", "5 sequences", "2"});
  expect_error<base::InputError>(
      [&] {
        with("layers.0.cache", at::zeros({2, 3}, at::kDouble));
      },
      {"layers.0.cache", "1 N"});
  // An absent tensor is loaded if the file has it, but it must have the declared number of dimensions.
  expect_error<base::InputError>(
      [&] {
        with("layers.1.valid", at::ones({2, 4, 1}, at::kBool));
      },
      {"layers.1.valid", "B M"});
}

}  // namespace
}  // namespace mnemo::core
