#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "models/model.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// One model that `mnemo-bench decoding` runs token by token.
struct DecodingCase {
  std::string name,
      attention;  ///< attention: softmax (a GPT-2 or a Llama, without bias on the logits), relative or abc
  int64_t layers, dim, heads, ffn, vocab, segment, mem_len, mem_tokens, slots;
  std::vector<int64_t> contexts;
  int64_t kv_heads = 0;  ///< softmax: above 0 a Llama (rotary positions, RMS norm, gated feed-forward, no biases)

  bool has_peers() const { return attention == "softmax"; }
  std::unique_ptr<models::Model> build() const;
  /// The configuration sent to the peer.
  base::Node as_node(int64_t threads) const;
};

const std::vector<DecodingCase>& decoding_cases();

/// Our side of one case.
class DecodingSubject {
 public:
  explicit DecodingSubject(const DecodingCase& decoding_case);
  ~DecodingSubject();

  /// Tensors for the peers: the parameters by name.
  weights::NamedTensors tensors() const;
  /// The most likely tokens one by one after token 0, in float32.
  std::vector<int64_t> greedy(int64_t count);
  /// Seconds for one token of each of `batch` sequences that have read `context` random tokens, the median of `count`.
  /// A later call continues where this one ended.
  double token(const std::string& precision, int64_t context, int64_t batch, int64_t count);
  /// Bytes that one token of one sequence must read: the weights, and the sequence's state after `context` tokens.
  double bytes(const std::string& precision, int64_t context);
  /// Abc only: seconds per greedy token, the median of `count`, at a position that the state is set to. The memory
  /// holds the content of 1,000 tokens.
  double token_at(const std::string& precision, int64_t position, int64_t count);
  /// Discards all sequences, and the weights of a precision.
  void drop();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::bench
