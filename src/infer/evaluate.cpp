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
                                  bool reset_segments, int64_t context, const base::ShouldStop& should_stop) {
  const int64_t vocab = core::token_input(engine.model()->input()).vocab_size;
  base::require(text->vocabulary_size() <= vocab,
                "evaluation: the text has {} distinct tokens, but the model's vocabulary only {}",
                text->vocabulary_size(), vocab);
  base::require(context == 0 || reset_segments, "evaluation: a context needs independent segments, found {}", context);
  data::EvalStream stream(std::move(text));
  EngineSequence sequence = engine.begin();
  std::vector<float> weights(static_cast<size_t>(vocab));
  metrics::Likelihood likelihood;
  int64_t rows = 0;
  while (const auto segment = stream.next(core::token_input(engine.model()->input()).segment_size, context)) {
    if (reset_segments || (segment->reset.defined() && segment->reset.any().item<bool>())) sequence = engine.begin();
    const at::Tensor tokens = segment->input.tokens.to(at::kLong).contiguous(),
                     targets = data::token_targets(*segment).to(at::kLong).contiguous();
    const int64_t* target = targets.const_data_ptr<int64_t>();
    double sum = 0.0;
    int64_t count = 0;
    engine.run(sequence, {tokens.const_data_ptr<int64_t>(), static_cast<size_t>(tokens.numel())},
               [&](const float* logits) {
                 if (rows++ % Engine::kRows == 0) base::stop_if_asked(should_stop, "evaluation");
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
