#include "infer/fingerprint.h"

#include <torch/types.h>

#include <mutex>
#include <utility>

#include "base/checksum.h"
#include "models/model.h"

namespace mnemo::infer {

struct Fingerprint::Shared {
  std::function<std::string()> compute;
  std::once_flag once;
  std::string text;
};

Fingerprint::Fingerprint(std::function<std::string()> compute) : shared_(std::make_shared<Shared>()) {
  shared_->compute = std::move(compute);
}

Fingerprint::Fingerprint(std::shared_ptr<const core::Model> model)
    : Fingerprint([model = std::move(model)] { return fingerprint(*model); }) {}

const std::string& Fingerprint::text() const {
  std::call_once(shared_->once, [this] {
    shared_->text = shared_->compute();
    shared_->compute = nullptr;
  });
  return shared_->text;
}

std::string fingerprint(const core::Model& model) {
  base::Sha256 hash;
  const core::TokenInput& input = core::token_input(model.input());
  hash.update(fmt::format("{} {}\n", input.segment_size, input.vocab_size));
  if (const auto* built = dynamic_cast<const models::Model*>(&model)) {
    // Options set in code may omit defaults that a file contains: compare complete options.
    const auto complete = base::read_options<models::ModelOptions>(base::write_options(built->options()));
    hash.update(base::to_json(base::write_options(complete), -1));
  }
  for (const auto& [name, tensor, kind] : model.parameters().all()) {
    hash.update(fmt::format("\n{} {} {}\n", name, c10::toString(tensor.scalar_type()), c10::str(tensor.sizes())));
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    hash.update(plain.const_data_ptr(), plain.nbytes());
  }
  return hash.hex();
}

}  // namespace mnemo::infer
