#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "inspect/cache_share.h"

namespace mnemo::study {

/// One point of a training curve: the training loss since the last point, or a held-out measurement, or both.
struct CurvePoint {
  int64_t step = 0;
  int64_t tokens = 0;
  double seconds = 0;
  std::optional<double> train = {};
  std::optional<double> held_out = {};
  template <class V>
  void visit(V&& v) {
    v("step", step, "optimiser steps so far");
    v("tokens", tokens, "training tokens so far");
    v("seconds", seconds, "of training so far");
    v("train", train, "training loss, in the study's unit");
    v("held_out", held_out, "the study's metric on held-out data");
  }
};

/// The same at one step of a training.
struct CacheSharePoint {
  int64_t step = 0;
  std::vector<inspect::CacheShare> layers = {};
  template <class V>
  void visit(V&& v) {
    v("step", step, "optimiser steps so far");
    v("layers", layers, "sigma(lambda) of GRC layers");
  }
};

/// What one training of one variant gave; the file that a child process hands to its parent.
struct RunResult {
  std::string study = {}, variant = {}, point = {};
  int64_t seed = 0;
  std::string error = {};
  std::optional<double> value = {};
  std::optional<double> loss = {};
  int64_t parameters = 0;
  int64_t state_bytes = 0;
  int64_t model_state_bytes = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
  std::optional<double> train_tokens_per_second = {};
  std::optional<double> tokens_per_second_64 = {};
  std::optional<double> tokens_per_second_4096 = {};
  int64_t peak_memory = 0;
  std::vector<CurvePoint> curve = {};
  std::string span_text = {}, span_svg = {};
  std::vector<inspect::CacheShare> cache_share = {};
  std::vector<CacheSharePoint> cache_share_curve = {};
  std::string prompt = {}, sample = {};

  template <class V>
  void visit(V&& v) {
    v("study", study, "name of the study");
    v("variant", variant, "name of the variant");
    v("point", point, "of the study's sweep: the swept keys with their values");
    v("seed", seed, "of weights, data order and dropout");
    v("error", error, "why the run failed; empty: it did not");
    v("value", value, "the study's metric on held-out data");
    v("loss", loss, "nats a target on held-out data");
    v("parameters", parameters, "scalars that are trained");
    v("state_bytes", state_bytes, "bytes a sequence carries between segments, when its memory is full");
    v("model_state_bytes", model_state_bytes, "bytes of state that belong to the model");
    v("steps", steps, "optimiser steps");
    v("tokens", tokens, "training tokens");
    v("seconds", seconds, "of training, measuring left out");
    v("train_tokens_per_second", train_tokens_per_second, "training speed");
    v("tokens_per_second_64", tokens_per_second_64, "generation, one token at a time, from position 64");
    v("tokens_per_second_4096", tokens_per_second_4096, "generation, one token at a time, from position 4096");
    v("peak_memory", peak_memory, "most bytes the training process held");
    v("curve", curve, "of the training");
    v("span_text", span_text, "who attends to whom, for a terminal");
    v("span_svg", span_svg, "who attends to whom, as a picture");
    v("cache_share", cache_share, "sigma(lambda) of GRC layers");
    v("cache_share_curve", cache_share_curve, "the same over the training");
    v("prompt", prompt, "what the sample goes on from");
    v("sample", sample, "text the model wrote");
  }
};

/// Reads a file that write_result wrote. Throws InputError.
RunResult read_result(const std::string& path);
void write_result(const std::string& path, const RunResult& result);

}  // namespace mnemo::study
