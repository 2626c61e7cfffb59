#include <torch/types.h>

#include "core/decode.h"
#include "heads/language_model.h"

namespace mnemo::heads {
namespace {

class LanguageModelDecoder final : public core::DecodeHead {
 public:
  explicit LanguageModelDecoder(ops::PackedLinear map) : map_(std::move(map)) {}
  void logits(const float* hidden, int64_t rows, float* logits) const override {
    map_(hidden, rows, map_.in(), logits, map_.out());
  }
  int64_t num_bytes() const override { return map_.num_bytes(); }

 private:
  ops::PackedLinear map_;
};

}  // namespace

std::unique_ptr<core::DecodeHead> LanguageModel::decoder(const core::DecodeBuild& build) const {
  return std::make_unique<LanguageModelDecoder>(build.pack(factor_ == 1.0 ? weight_ : weight_ * factor_, bias_));
}

}  // namespace mnemo::heads
