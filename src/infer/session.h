#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model.h"
#include "infer/engine.h"
#include "infer/progress.h"
#include "infer/sampling.h"

namespace mnemo::infer {

/// What an engine keeps of a sequence.
struct Decoding {
  EngineSequence sequence;
  std::vector<float> logits;  ///< [V] of the next token; empty before the first
};

/// One sequence that a model reads and continues, token by token. A value: a copy is a fork that shares tensors with
/// the original and continues on its own. Several sessions of one model may run in several threads.
///
/// A picked token runs through the model when the next one is asked for, so the last token of a text costs nothing.
/// Segments end after every model.segment_size() tokens, counted from the beginning of the sequence; memories move
/// there.
class Session {
 public:
  explicit Session(std::shared_ptr<const core::Model> model, const SamplingOptions& sampling = {});
  /// The same by a decoding engine: the same text up to rounding, several times as fast.
  explicit Session(std::shared_ptr<const Engine> engine, const SamplingOptions& sampling = {});

  /// Reads tokens, any number of segments long. On an error the session is as it was.
  /// Throws InputError for a token out of range.
  void feed(std::span<const int64_t> tokens);
  /// The same from a tensor [T] of an integer type.
  void feed(const at::Tensor& tokens);

  /// Picks the next token and takes it as the sequence's. Which one depends on the tokens so far, the sampling options
  /// and the model alone. Throws InputError before the first token was fed, and for logits that are not finite.
  int64_t next();

  /// Logits of the next token [V]. Throws InputError before the first token was fed.
  at::Tensor logits();

  /// next() up to max_tokens times. on_token gets each token as it comes and stops the generation by returning false. A
  /// token of `stop` ends it too and is not handed on, though it is part of the sequence. Returns how many were handed
  /// on.
  int64_t generate(int64_t max_tokens, const std::function<bool(int64_t)>& on_token,
                   std::span<const int64_t> stop = {});

  /// A second session that has read the same and continues on its own.
  Session fork() const { return *this; }

  /// A point to come back to. It keeps the tensors of that moment alive.
  class Mark {
    friend class Session;
    std::shared_ptr<const core::Model> model_;
    Progress progress_;
    std::optional<Decoding> decoding_;
  };
  Mark mark() const;
  /// Takes back everything since the mark, which may be used again. Throws InputError if it is another model's.
  void rewind(const Mark& mark);

  /// Writes the session (not the model) as a safetensors file.
  void save(const std::string& path) const;
  /// Continues from such a file exactly. Throws InputError if the file is damaged, is no session, or belongs to a model
  /// with other options or weights.
  static Session load(const std::string& path, std::shared_ptr<const core::Model> model);
  static Session load(const std::string& path, std::shared_ptr<const Engine> engine);

  const core::Model& model() const { return *model_; }
  const std::shared_ptr<const core::Model>& shared_model() const { return model_; }
  const SamplingOptions& sampling() const { return sampler_.options(); }
  /// For the tokens still to come.
  void set_sampling(const SamplingOptions& sampling) { sampler_ = Sampler(sampling); }
  /// Whether memory starts again at every segment from now on: of models trained so (data.reset = "segments"). A saved
  /// session does not keep it.
  void set_reset_segments(bool reset) { progress_.reset_segments = reset; }
  /// Tokens of the sequence so far.
  int64_t position() const { return progress_.position; }
  /// The last tokens of the sequence, three at most, the latest behind; fewer after loading a file that does not hold
  /// them.
  std::vector<int64_t> recent() const;
  /// The state after the tokens that have run (all but one that was just picked). Its tensors were made in inference
  /// mode: to train from it, clone it outside of that first.
  core::State state() const;
  /// Bytes that this sequence keeps in its state; what the model shares with all sequences is not counted.
  int64_t num_bytes() const;

 private:
  friend class Batcher;
  void run(std::span<const int64_t> tokens);
  /// The next token from the logits there are.
  int64_t pick() const;

  std::shared_ptr<const core::Model> model_;
  std::shared_ptr<const Engine> engine_;
  Sampler sampler_;
  Progress progress_;
  std::optional<Decoding> decoding_;  ///< with an engine: in place of progress_.state and progress_.logits
};

/// A session in the fastest form that can run the model: a decoding engine with float32 weights, else the model itself.
Session fastest_session(std::shared_ptr<const models::Model> model, const SamplingOptions& sampling = {});

/// SHA-256 over names, shapes, types and values of a model's parameters and over its segment size: the same for the
/// same model, wherever it is loaded.
std::string fingerprint(const core::Model& model);

}  // namespace mnemo::infer
