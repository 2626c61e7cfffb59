// Session files of real models whose tensors contradict one another: refused before any of them is used as a place.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "base/error.h"
#include "infer/session.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
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
                 ".position", negative, {"position of 0 or more, found -3"});
  expect_refused("backbone.attention = { type = \"abc\", num_slots = 4, control = { type = \"dilated\" } }",
                 ".position", negative, {"position of 0 or more, found -3"});
}

}  // namespace
}  // namespace mnemo::infer
