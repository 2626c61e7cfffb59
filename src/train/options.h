#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/options.h"
#include "ops/linear/linear.h"
#include "train/low_rank.h"
#include "train/optimiser.h"
#include "train/schedule.h"

namespace mnemo::train {

/// Where gradients are cut between segments. Both forms cut each state field according to its depth k =
/// model.bptt_depth(path); -1: never.
///   sliding  gradients reach exactly k boundaries back from each loss, to segments s, s-1, ... s-k (the definition
///            of the golden files)
///   chunked  the field is detached at every (k+1)th boundary of the list, which is cheaper: gradients reach 0 to k
///            boundaries back
/// In both forms, a field of depth 0 is cut at every boundary. The initial state does not count as a boundary and keeps
/// its graph.
enum class BpttForm { sliding, chunked };

/// How a model is trained: the `[train]` table of a recipe.
struct TrainOptions {
  int64_t steps = 1000;
  int64_t batch_size = 16;
  int64_t segments_per_step = 1;
  int64_t replay = 0;
  BpttForm bptt = BpttForm::sliding;
  enum class Recompute { none, segment, automatic, layer } recompute = Recompute::none;
  std::optional<int64_t> memory_limit = std::nullopt;
  int64_t accumulate = 1;
  ops::ProductPrecision precision = ops::ProductPrecision::float32;
  enum class ReducePrecision { float32, bf16 } reduce_precision = ReducePrecision::float32;
  bool shard_optimiser = false;
  base::Node optimiser = base::Node::table({{"type", "adamw"}});
  base::Node schedule = base::Node::table({{"type", "constant"}});
  std::vector<std::string> only;
  std::optional<LoraOptions> lora = std::nullopt;
  std::optional<double> clip_norm = 1.0;
  std::optional<double> ema_decay = std::nullopt;
  bool shuffle = false;
  int64_t seed = 0;
  int64_t threads = 0;
  int64_t log_every = 10;
  int64_t eval_every = 0;
  int64_t eval_batch_size = 16;
  int64_t eval_samples = 512;
  int64_t eval_train_samples = 0;
  std::optional<int64_t> eval_context = std::nullopt;
  std::optional<double> stop_at = std::nullopt;
  std::optional<int64_t> patience = std::nullopt;
  int64_t save_every = 0;
  int64_t keep_last = 3;
  bool tensorboard = true;
  bool report = true;

  template <class V>
  void visit(V&& v) {
    v("steps", steps, "optimizer steps", base::at_least(1));
    v("batch_size", batch_size, "sequences per step, including all parts of `accumulate`", base::range(1, 1 << 20));
    v("segments_per_step", segments_per_step,
      "segments of a text (of documents: pairs) per step, which gradients cross; other tasks read whole samples",
      base::range(1, 1 << 16));
    v("replay", replay,
      "text: number of earlier segments that each step reads again, without a loss, before its new ones, so that "
      "gradients reach back that far whatever segments_per_step is (as RMT's authors intend)",
      base::range(0, 1 << 16));
    v("bptt", bptt,
      "sliding: gradients flow back exactly bptt_depth boundaries from each segment; chunked: 0 to bptt_depth "
      "boundaries, cheaper",
      base::one_of("sliding", "chunked"));
    v("recompute", recompute,
      "gradient checkpointing: none: keep all activations; segment: keep only the state at segment boundaries and "
      "recompute the rest, bit for bit; auto: keep segments as long as they fit in memory_limit; layer: keep the input "
      "of each layer and recompute the rest, bit for bit",
      base::one_of("none", "segment", "auto", "layer"));
    v("memory_limit", memory_limit, "with recompute = \"auto\": limit in MB for the activations that are kept",
      base::range(1, int64_t{1} << 30));
    v("accumulate", accumulate, "gradient accumulation: split the batch into this many parts to save memory",
      base::at_least(1));
    v("precision", precision,
      "precision of the linear layers, forward and backward; bf16 rounds both factors to bfloat16 and sums in float32; "
      "everything else stays in float32",
      base::one_of("float32", "bf16"));
    v("reduce_precision", reduce_precision,
      "type in which the gradients of several processes are summed; bf16 halves the traffic. No effect with one "
      "process",
      base::one_of("float32", "bf16"));
    v("shard_optimiser", shard_optimiser,
      "several processes: each keeps only its part of the optimizer's state (ZeRO stage 1), to save memory. No effect "
      "with one process");
    v("optimiser", optimiser, "the optimizer", base::poly(optimiser_types()));
    v("schedule", schedule, "the learning rate schedule", base::poly(schedule_types()));
    v("only", only,
      "train only these parameters: patterns of their names with * and ? (\"memory.*\", \"head.*\"); empty: all, or "
      "with lora only its factors",
      base::not_empty());
    v("lora", lora, "LoRA: weights move by a product of two narrow matrices; unset: whole weights are trained");
    v("clip_norm", clip_norm, "gradient clipping: maximum gradient norm; unset: no clipping", base::positive());
    v("ema_decay", ema_decay,
      "decay of an exponential moving average of the weights, which is evaluated and saved as the model; unset: none",
      base::open_range(0, 1));
    v("shuffle", shuffle, "shuffle the samples, or the documents of a text, every epoch");
    v("seed", seed, "random seed for initial weights, data order and dropout", base::at_least(0));
    v("threads", threads,
      "number of LibTorch threads; 0: one for a small model, else LibTorch's default; the library leaves it",
      base::range(0, 1024));
    v("log_every", log_every, "steps between log lines", base::at_least(1));
    v("eval_every", eval_every, "steps between evaluations on held-out data; 0: only at the end", base::at_least(0));
    v("eval_batch_size", eval_batch_size,
      "batch size of evaluations; with 1, every token of a text has the full history", base::range(1, 1 << 20));
    v("eval_samples", eval_samples, "samples of an evaluation, at most; a text is measured whole", base::at_least(1));
    v("eval_train_samples", eval_train_samples,
      "images: number of training images, evenly spread and prepared like held-out ones, that evaluations measure too "
      "(train_accuracy, train_nll); 0: none",
      base::at_least(0));
    v("eval_context", eval_context,
      "text with data.reset = \"segments\": number of tokens at the start of each evaluated segment that are read "
      "again, not scored: the ones before; unset: 0",
      base::range(0, (1 << 20) - 1));
    v("stop_at", stop_at,
      "stop training early when the held-out metric reaches this value (accuracy at least, bits or perplexity at "
      "most); unset: never",
      base::at_least(0));
    v("patience", patience,
      "stop training early after this many evaluations without a better held-out metric, and keep the weights of the "
      "best one; unset: never",
      base::at_least(1));
    v("save_every", save_every,
      "steps between checkpoints, beside those of new bests; 0: at the end, and with `patience` new bests",
      base::at_least(0));
    v("keep_last", keep_last, "number of latest checkpoints to keep, in addition to the best one; 0: all",
      base::at_least(0));
    v("tensorboard", tensorboard, "write event files for TensorBoard");
    v("report", report, "write report.html, a page of curves and samples that follows the training");
  }
  void validate(const base::Where& where) const {
    where.require(batch_size % accumulate == 0, "accumulate", "expected a divisor of batch_size = {}, found {}",
                  batch_size, accumulate);
    where.require(!stop_at || eval_every > 0, "stop_at",
                  "it is checked at each evaluation; expected eval_every above 0, found 0");
    where.require(!patience || eval_every > 0, "patience",
                  "it counts evaluations; expected eval_every above 0, found 0");
    where.require(!shard_optimiser || (only.empty() && !lora), "shard_optimiser",
                  "divides the state of all parameters; expected false with only or lora, found true");
    where.require(!lora || !ema_decay, "lora",
                  "an average of the weights is not of rank r; expected lora or ema_decay, found both");
    where.require(recompute != Recompute::automatic || memory_limit, "memory_limit",
                  "required by recompute = \"auto\"; expected MB, found none");
    where.require(recompute == Recompute::automatic || !memory_limit, "memory_limit",
                  "requires recompute = \"auto\", found recompute = \"{}\"",
                  recompute == Recompute::none    ? "none"
                  : recompute == Recompute::layer ? "layer"
                                                  : "segment");
  }
};

}  // namespace mnemo::train
