#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "infer/engine.h"
#include "infer/fingerprint.h"
#include "infer/progress.h"
#include "infer/sampling.h"
#include "infer/token_graphs.h"

namespace mnemo::core {
class Model;
}
namespace mnemo::weights {
struct TensorFile;
}

namespace mnemo::infer {

/// An engine's state for a sequence.
struct Decoding {
  EngineSequence sequence;
  std::vector<float> logits;  ///< [V] of the next token; empty before the first
};

/// One sequence that a model reads and continues, token by token. It has value semantics: a copy is a fork that shares
/// tensors with the original and continues independently. Several sessions of one model may run in several threads.
///
/// A sampled token runs through the model only when the next one is requested, so the last token of a text costs
/// nothing. Segments end after every segment_size tokens of the model, counted from the beginning of the sequence;
/// memories are updated there.
class Session {
 public:
  explicit Session(std::shared_ptr<const core::Model> model, const GenerateOptions& sampling = {});
  /// Uses a decoding engine: the same text up to rounding, several times faster.
  explicit Session(std::shared_ptr<const Engine> engine, const GenerateOptions& sampling = {});

  /// Reads tokens, across any number of segments. On an error the session is unchanged.
  /// Throws InputError for a token out of range.
  void feed(std::span<const int64_t> tokens);
  /// Same for a tensor [T] of an integer type.
  void feed(const at::Tensor& tokens);

  /// Samples the next token and appends it to the sequence. It depends only on the tokens so far, the sampling options
  /// and the model. Throws InputError if no token has been fed, and for logits that are not finite.
  int64_t next();

  /// Reads tokens and returns the log probability of each, in nats, given those before it: log softmax(logits),
  /// whatever the sampling options. NaN for a token without any before it.
  std::vector<double> score(std::span<const int64_t> tokens);

  /// Logits of the next token [V]. Throws InputError if no token has been fed.
  at::Tensor logits();

  /// Calls next() up to max_tokens times. on_token receives each token and stops the generation by returning false. A
  /// token in `stop` also ends it; on_token is not called for it, though it is part of the sequence. Returns how many
  /// tokens were passed to on_token.
  int64_t generate(int64_t max_tokens, const std::function<bool(int64_t)>& on_token,
                   std::span<const int64_t> stop = {});

  /// Returns a second session that has read the same tokens and continues independently, with the same random numbers:
  /// both write the same text until one is fed something else.
  Session fork() const { return *this; }
  /// Same with a seed of its own.
  Session fork(int64_t seed) const;

  /// A point to rewind to. It keeps the tensors of that point alive.
  class Mark {
    friend class Session;
    std::shared_ptr<const core::Model> model_;
    Progress progress_;
    TokenCounts counts_;
    std::optional<Decoding> decoding_;
    EngineOptions options_;
  };
  Mark mark() const;
  /// Undoes everything since the mark, which can be used again. Throws InputError if the mark belongs to another model
  /// or precision.
  void rewind(const Mark& mark);

  /// Writes the session (not the model) as a safetensors file, or to memory.
  void save(const std::string& path) const;
  std::string save_bytes() const;
  /// Continues from such a file exactly. Throws InputError if the file is damaged, is not a session, or belongs to a
  /// model with other options or weights, or if its keys are int8 and the engine's are not, or the other way round.
  static Session load(const std::string& path, std::shared_ptr<const core::Model> model);
  static Session load(const std::string& path, std::shared_ptr<const Engine> engine);
  /// Same from memory.
  static Session load_bytes(std::string_view bytes, std::shared_ptr<const core::Model> model);
  static Session load_bytes(std::string_view bytes, std::shared_ptr<const Engine> engine);

  const core::Model& model() const { return *model_; }
  const std::shared_ptr<const core::Model>& shared_model() const { return model_; }
  /// Null without a decoding engine.
  const std::shared_ptr<const Engine>& shared_engine() const { return engine_; }
  const GenerateOptions& sampling() const { return sampler_.options(); }
  /// For future tokens. The tokens that penalties count are counted from when a penalty is first on, and from then on
  /// also while none is.
  void set_sampling(const GenerateOptions& sampling) {
    sampler_ = Sampler(sampling, sampler_.unknown_id(), sampler_.vocabulary());
  }
  /// The token <unk>, which is sampled from now on only with sampling().sample_unknown, and the number of tokens that
  /// stand for a text: others are not sampled.
  void set_vocabulary(int64_t unknown_id, int64_t size) { sampler_ = Sampler(sampler_.options(), unknown_id, size); }
  /// Whether to reset memory at every segment from now on, for models trained that way (data.reset = "segments").
  void set_reset_segments(bool reset) { progress_.reset_segments = reset; }
  /// Whether next() runs a model that is on a CUDA device by recorded graphs (infer/token_graphs.h), which it does not
  /// at first: the same logits up to rounding. A model that cannot be recorded goes on as before, after a warning.
  void set_graphs(bool wanted) { graphs_.set_wanted(wanted); }
  /// Tokens that ran so.
  int64_t graph_tokens() const { return graphs_.tokens(); }
  /// Tokens of the sequence so far.
  int64_t position() const { return progress_.position; }
  /// How many of `wanted` tokens the model can write after reading `read` more: an attention may have positions for so
  /// many alone. Throws InputError if it can write none of them. Without a decoding engine it is `wanted`, and next()
  /// throws where positions end.
  int64_t can_write(int64_t read, int64_t wanted) const;
  /// The last tokens of the sequence, at most three, latest last; fewer after loading a file that does not contain
  /// them.
  std::vector<int64_t> recent() const;
  /// The state after the processed tokens (all except one that was just sampled). Its tensors were created in inference
  /// mode: to train from it, first clone it outside inference mode.
  core::State state() const;
  /// Bytes of this sequence's state, not counting what the model shares with all sequences.
  int64_t state_bytes() const;
  /// Bytes of all that the session holds: its state, the next token's logits, and 12 for each different token that it
  /// has counted.
  int64_t num_bytes() const;

 private:
  friend class Batcher;
  friend class Scheduler;
  friend class TextSession;
  using EachLogits = std::function<void(const at::Tensor&)>;
  /// `each`: called with logits [n,V] of the following tokens, in order; null: not needed.
  void run(std::span<const int64_t> tokens, const EachLogits& each = {});
  void run_engine(std::span<const int64_t> tokens, const EachLogits& each);
  /// Samples the next token from the current logits.
  int64_t pick() const;
  /// Appends a sampled token, which runs later.
  void append(int64_t token);
  /// Whether tokens are counted for penalties.
  bool counts() const { return sampling().penalises() || !counts_.entries().empty(); }
  /// Accounts for tokens that the engine has run, the pending one first if there is one.
  void ran(std::span<const int64_t> tokens);
  /// A session of the same model and rules without tokens.
  Session fresh() const;
  weights::TensorFile to_file() const;
  /// Continues from a file; `name` stands for it in messages. Runs the model to find tensors that contradict one
  /// another.
  void restore(const weights::TensorFile& file, const std::string& name);
  /// Same, sooner, for what to_file() has certainly made.
  void restore_own(const weights::TensorFile& file, const std::string& name);
  /// Reads a file; what is not in Progress is set.
  Progress read_progress(const weights::TensorFile& file, const std::string& name);
  void continue_from(Progress progress, const std::string& name);

  std::shared_ptr<const core::Model> model_;
  std::shared_ptr<const Engine> engine_;
  Fingerprint fingerprint_;  // of the model
  Sampler sampler_;
  Progress progress_;
  TokenCounts counts_;
  std::optional<Decoding> decoding_;  ///< with an engine: replaces progress_.state and progress_.logits
  OwnTokenGraphs graphs_;
};

/// A session using the fastest implementation that supports the model: a decoding engine with float32 weights, else the
/// model itself.
Session fastest_session(std::shared_ptr<const models::Model> model, const GenerateOptions& sampling = {});

}  // namespace mnemo::infer
