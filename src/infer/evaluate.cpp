#include "infer/evaluate.h"

#include <torch/types.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/ignore_target.h"
#include "core/head.h"
#include "data/text/streams.h"
#include "models/model.h"
#include "ops/row_kernels.h"

namespace mnemo::infer {

metrics::Likelihood evaluate_text(const Engine& engine, std::shared_ptr<const data::TokenStore> text,
                                  bool reset_segments, int64_t context) {
  const int64_t vocab = engine.model()->vocab_size();
  base::require(text->vocabulary_size() <= vocab,
                "evaluation: the text has {} distinct tokens, but the model's vocabulary only {}",
                text->vocabulary_size(), vocab);
  base::require(context == 0 || reset_segments, "evaluation: a context is for segments that stand alone, found {}",
                context);
  data::EvalStream stream(std::move(text));
  EngineSequence sequence = engine.begin();
  std::vector<float> weights(static_cast<size_t>(vocab));
  metrics::Likelihood likelihood;
  while (const auto segment = stream.next(engine.model()->segment_size(), context)) {
    if (reset_segments || (segment->reset.defined() && segment->reset.any().item<bool>())) sequence = engine.begin();
    const at::Tensor tokens = segment->tokens.to(at::kLong).contiguous(),
                     targets = segment->targets.to(at::kLong).contiguous();
    const int64_t* target = targets.const_data_ptr<int64_t>();
    double sum = 0.0;
    int64_t count = 0;
    engine.run(sequence, {tokens.const_data_ptr<int64_t>(), static_cast<size_t>(tokens.numel())},
               [&](const float* logits) {
                 const int64_t wanted = *target++;
                 if (wanted == base::kIgnoreTarget) return;
                 std::copy_n(logits, vocab, weights.data());
                 const float most = ops::add_then_max<float>(weights.data(), nullptr, vocab);
                 sum += std::log(static_cast<double>(ops::exp_then_sum(weights.data(), vocab, most))) +
                        static_cast<double>(most) - static_cast<double>(logits[wanted]);
                 ++count;
               });
    likelihood.add(sum, count);
  }
  return likelihood;
}

}  // namespace mnemo::infer
