// Session files of real models whose tensors contradict one another: refused before any of them is used as a place.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "infer/engine.h"
#include "infer/session.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/decoding_cases.h"
#include "weights/safetensors.h"

namespace mnemo::infer {
namespace {

using Spoil = std::function<at::Tensor(const at::Tensor&)>;

/// Saves a session after six tokens, replaces the tensor whose name ends so, and expects it to be refused.
void expect_refused(const std::string& options, const std::string& ending, const Spoil& spoil,
                    std::initializer_list<std::string> parts) {
  SCOPED_TRACE(options + " " + ending);
  const test::TemporaryFolder folder;
  const std::string path = folder / "session.safetensors";
  const std::shared_ptr<const models::Model> model = models::build(
      base::read_options<models::ModelOptions>(
          base::parse_toml("segment_size = 16\nembedding.vocab_size = 7\nbackbone.num_layers = 1\nbackbone.dim = 8\n"
                           "backbone.num_heads = 2\nbackbone.ffn_dim = 8\n" +
                               options,
                           "test")),
      1);
  const auto engine = std::make_shared<const Engine>(model);
  Session session(engine);
  session.feed(std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  session.save(path);
  Session::load(path, engine);
  weights::TensorFile file = weights::read_safetensors(path);
  int64_t found = 0;
  for (auto& [name, tensor] : file.tensors) {
    if (!name.ends_with(ending)) continue;
    tensor = spoil(tensor).contiguous();
    ++found;
  }
  ASSERT_GT(found, 0);
  weights::write_safetensors(path, file.tensors, file.metadata);
  test::expect_error<base::InputError>([&] { Session::load(path, engine); }, parts);
}

TEST(HostileSession, PlacesOutsideTheStateAreRefused) {
  const Spoil two = [](const at::Tensor& tensor) { return tensor.narrow(1, 0, 2); };
  const Spoil negative = [](const at::Tensor& tensor) { return at::full_like(tensor, -3); };
  expect_refused("", "open.valid", two, {"contradict", "open.valid", "6 rows of the segment at least, found 2"});
  expect_refused("backbone.attention = { type = \"abc\", num_slots = 32, control = { type = \"identity\" } }",
                 ".position", negative, {"position of 0 to", "found -3"});
  expect_refused("backbone.attention = { type = \"abc\", num_slots = 4, control = { type = \"dilated\" } }",
                 ".position", negative, {"position of 0 to", "found -3"});
  const Spoil last = [](const at::Tensor& tensor) {
    return at::full_like(tensor, std::numeric_limits<int64_t>::max());
  };
  expect_refused("backbone.attention = { type = \"abc\", num_slots = 4, control = { type = \"dilated\" } }",
                 ".position", last, {"position of 0 to", "found 9223372036854775807"});
}

TEST(HostileSession, RowsThatContradictTheOpenSegmentAreRefused) {
  const Spoil none = [](const at::Tensor& tensor) { return at::zeros_like(tensor); };
  const Spoil one_less = [](const at::Tensor& tensor) {
    const at::Tensor changed = tensor.clone();
    changed.narrow(1, 0, 1).fill_(false);
    return changed;
  };
  expect_refused("", "open.valid", none, {"session.safetensors", "exactly 6 real rows in its open segment, found 0"});
  const std::string cached = "memory = [{ type = \"segment_cache\", mem_len = 8 }]";
  expect_refused(cached, "open.valid", none, {"at least 6 real rows in its open segment, found 0"});
  expect_refused(cached, "segment_cache.valid", one_less, {"[segment_cache]", "expected 6, found 5"});
  const std::string compressive = "memory = [{ type = \"compressive\", mem_len = 4, compressed_len = 2 }]";
  expect_refused(compressive, "compressive.valid", one_less, {"[compressive]", "5, found 6"});
  expect_refused(compressive, "open_rows", [](const at::Tensor& tensor) { return at::full_like(tensor, 1 << 30); },
                 {"[compressive]", "expected at most 8 rows of the segment"});
}

/// Damaged copies of a tensor of flags or of whole numbers; none of other tensors.
std::vector<at::Tensor> damages(const at::Tensor& tensor) {
  std::vector<at::Tensor> all;
  if (tensor.scalar_type() == at::kBool) {
    const int64_t half = tensor.numel() / 2;
    all = {at::zeros_like(tensor), at::ones_like(tensor), tensor.clone().contiguous(), tensor.clone().contiguous()};
    all[2].view(-1).narrow(0, 0, half).fill_(false);
    all[3].view(-1).narrow(0, half, tensor.numel() - half).fill_(false);
  } else if (at::isIntegralType(tensor.scalar_type(), false)) {
    for (const int64_t value : {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{7}, int64_t{1} << 30}) {
      all.push_back(at::full_like(tensor, value));
      if (tensor.scalar_type() == at::kLong) all.push_back(at::full_like(tensor, value << 32));
    }
  }
  return all;
}

/// A damaged file is refused, or its session goes on and can be saved and loaded itself.
void expect_harmless(const std::shared_ptr<const Engine>& engine, const weights::TensorFile& file) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "session.safetensors";
  weights::write_safetensors(path, file.tensors, file.metadata);
  try {
    Session session = Session::load(path, engine);
    session.feed(text(13));
    session.save(path);
    Session::load(path, engine).feed(text(4));
  } catch (const base::InputError&) {
  }
}

TEST(HostileSession, NoDamagedFlagOrNumberOfAnyMechanismDoesHarm) {
  int64_t damaged = 0;
  for (const Case& of : cases()) {
    SCOPED_TRACE(of.name);
    const test::TemporaryFolder folder;
    const std::string path = folder / "session.safetensors";
    const auto engine = std::make_shared<const Engine>(build(of));
    Session session(engine);
    session.feed(text(13));
    session.save(path);
    const weights::TensorFile file = weights::read_safetensors(path);
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      for (const at::Tensor& damage : damages(file.tensors[i].second)) {
        weights::TensorFile changed = file;
        changed.tensors[i].second = damage;
        SCOPED_TRACE(file.tensors[i].first);
        expect_harmless(engine, changed);
        ++damaged;
      }
    }
  }
  EXPECT_GT(damaged, 500);
}

}  // namespace
}  // namespace mnemo::infer
