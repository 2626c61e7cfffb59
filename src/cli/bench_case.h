#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "models/model.h"

namespace mnemo::cli {

/// One model that `mnemo bench` measures, and its batch.
struct BenchCase {
  std::string name;
  int64_t layers, dim, heads, ffn, segment, mem_len, mem_tokens, slots, batch, segments;

  std::unique_ptr<models::Model> build() const;
  /// What the peer reads.
  base::Node as_node(int64_t threads) const;
};

const std::vector<BenchCase>& bench_cases();

/// Our side: seconds of N training steps, and of N tokens generated from a position on.
class BenchSubject {
 public:
  explicit BenchSubject(const BenchCase& bench_case);
  ~BenchSubject();
  double train(int64_t steps);
  double generate(int64_t position, int64_t tokens);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace mnemo::cli
