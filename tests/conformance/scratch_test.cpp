// Law 9: uninitialised memory does not matter. Every tensor is allocated full of NaN, and the result has the same bits.
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "tests/conformance/suite.h"

namespace mnemo::test {
namespace {

/// LibTorch's allocator, with every allocated byte set to 0xFF: NaN in every floating type, -1 in integers.
class PoisonAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr memory = c10::GetDefaultCPUAllocator()->allocate(bytes);
    if (bytes > 0) std::memset(memory.get(), 0xFF, bytes);
    return memory;
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

/// During its lifetime, new tensors are full of NaN.
class Poisoned {
 public:
  Poisoned() { c10::SetCPUAllocator(&allocator(), kPriority); }
  ~Poisoned() { c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), kPriority); }
  Poisoned(const Poisoned&) = delete;
  Poisoned& operator=(const Poisoned&) = delete;

 private:
  static constexpr uint8_t kPriority = 100;
  static PoisonAllocator& allocator() {
    static PoisonAllocator one;
    return one;
  }
};

TEST(Poison, IsWhatFreshTensorsHold) {
  const Poisoned poisoned;
  EXPECT_TRUE(at::empty({5}, at::kDouble).isnan().all().item<bool>());
  EXPECT_TRUE(at::empty({5}, at::kFloat).isnan().all().item<bool>());
  EXPECT_EQ(at::zeros({5}, at::kDouble).sum().item<double>(), 0.0);
}

class Scratch : public Conformance {};

TEST_P(Scratch, FullOfNanChangesNothing) {
  auto model = make_model(config().options);
  const core::State warm = warm_state(*model, 2);
  Numbers numbers(3);
  const at::Tensor tokens = numbers.tokens({2, 12}, kVocab), weights = numbers.normal({2, 12, 8});
  const at::Tensor valid = at::cat(
      {at::ones({2, 9}, at::kBool), at::tensor({1, 0, 0, 1, 1, 1}).view({2, 3}).to(at::kBool)}, 1);
  const Plan plan = segments({4}) + in_parts(config(), {2, 1, 2}) + segments({3});
  const auto everything = [&] {
    model->parameters().zero_grad();
    const Outcome result = run(*model, tokens, plan, warm, core::Mode::train, valid);
    (result.hidden * weights).sum().backward();
    std::vector<at::Tensor> all = {result.hidden.detach()};
    for (const auto& [field, tensor] : core::detach(result.state).fields()) all.push_back(tensor);
    for (const auto& [name, tensor] : model->parameters().named()) all.push_back(tensor.grad());
    const at::NoGradGuard no_grad;
    all.push_back(run(*model, tokens, plan, warm, core::Mode::evaluate).hidden);
    return all;
  };
  const auto expected = everything();
  std::vector<at::Tensor> found;
  {
    const Poisoned poisoned;
    found = everything();
  }
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << "tensor " << i;
}

INSTANTIATE_TEST_SUITE_P(All, Scratch, testing::ValuesIn(decoders_and_encoders()), name_of);

}  // namespace
}  // namespace mnemo::test
