#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/node.h"
#include "base/options.h"
#include "train/optimiser.h"
#include "train/schedule.h"

namespace mnemo::train {

/// How a model is trained: the `[train]` table of a recipe.
struct TrainOptions {
  int64_t steps = 1000;
  int64_t batch_size = 16;
  int64_t segments_per_step = 1;
  std::string bptt = "sliding";
  std::string recompute = "none";
  std::optional<int64_t> memory_limit = std::nullopt;
  int64_t accumulate = 1;
  std::string precision = "float32";
  base::Node optimiser = base::Node::table({{"type", "adamw"}});
  base::Node schedule = base::Node::table({{"type", "constant"}});
  std::optional<double> clip_norm = 1.0;
  std::optional<double> ema_decay = std::nullopt;
  bool shuffle = false;
  int64_t seed = 0;
  int64_t threads = 0;
  int64_t log_every = 10;
  int64_t eval_every = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;
  std::optional<double> stop_at = std::nullopt;
  int64_t save_every = 0;
  int64_t keep_last = 3;
  bool tensorboard = true;

  template <class V>
  void visit(V&& v) {
    v("steps", steps, "optimiser steps", base::at_least(1));
    v("batch_size", batch_size, "sequences a step, all parts of `accumulate` together", base::range(1, 1 << 20));
    v("segments_per_step", segments_per_step,
      "segments of a text a step, within which gradients cross boundaries; made tasks always take whole samples",
      base::range(1, 1 << 16));
    v("bptt", bptt,
      "sliding: each segment's loss reaches exactly bptt_depth boundaries back; chunked: 0 to bptt_depth, cheaper",
      base::one_of("sliding", "chunked"));
    v("recompute", recompute,
      "none: every segment stays in memory until its backward pass; segment: only the state at its boundary does, the "
      "rest is computed "
      "again, to the same bits; auto: segments stay while they fit into memory_limit",
      base::one_of("none", "segment", "auto"));
    v("memory_limit", memory_limit, "of recompute = \"auto\": MB that the segments of a step may take that stay",
      base::range(1, int64_t{1} << 30));
    v("accumulate", accumulate,
      "parts the batch is cut into, to hold less in memory: the gradient is that of the whole batch",
      base::at_least(1));
    v("precision", precision,
      "of the products of linear maps, forward and backward; bf16: both factors are rounded to bfloat16, sums stay "
      "float32, and so do "
      "parameters, optimiser, states, norms, softmax and losses",
      base::one_of("float32", "bf16"));
    v("optimiser", optimiser, "how weights move", base::poly(optimiser_types()));
    v("schedule", schedule, "how the learning rate goes", base::poly(schedule_types()));
    v("clip_norm", clip_norm, "gradients of a larger norm are scaled down to it; unset: never", base::positive());
    v("ema_decay", ema_decay,
      "decay of an exponential moving average of the weights, which is what is measured and becomes the model; unset: "
      "none",
      base::open_range(0, 1));
    v("shuffle", shuffle, "documents of a text, or images, in another order every epoch");
    v("seed", seed, "of fresh weights, the order of the data, and dropout", base::at_least(0));
    v("threads", threads, "of LibTorch's operations; 0: as many as it likes", base::range(0, 1024));
    v("log_every", log_every, "steps between lines of the log", base::at_least(1));
    v("eval_every", eval_every, "steps between evaluations on held-out data; 0: only at the end", base::at_least(0));
    v("eval_batch_size", eval_batch_size,
      "sequences side by side in an evaluation; of a text, 1 sees the whole past at every token",
      base::range(1, 1 << 20));
    v("eval_samples", eval_samples, "samples of a made task, or images, in an evaluation", base::at_least(1));
    v("stop_at", stop_at,
      "value of the task's metric on held-out data at which training ends before `steps` are done: an accuracy of this "
      "or more (1: all right), "
      "bits or a perplexity of this or less; unset: never",
      base::at_least(0));
    v("save_every", save_every, "steps between checkpoints; 0: only at the end", base::at_least(0));
    v("keep_last", keep_last, "newest checkpoints that are kept, beside the best one; 0: all", base::at_least(0));
    v("tensorboard", tensorboard, "write event files for TensorBoard");
  }
  void validate(const base::Where& where) const {
    where.require(batch_size % accumulate == 0, "accumulate", "expected a divisor of batch_size = {}, found {}",
                  batch_size, accumulate);
    where.require(!stop_at || eval_every > 0, "stop_at",
                  "it is looked at with every evaluation; expected eval_every above 0, found 0");
    where.require(recompute != "auto" || memory_limit, "memory_limit",
                  "recompute = \"auto\" needs it; expected MB, found none");
    where.require(recompute == "auto" || !memory_limit, "memory_limit",
                  "it belongs to recompute = \"auto\", found recompute = \"{}\"", recompute);
  }
};

}  // namespace mnemo::train
