#include "data/answers/algorithmic.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "base/checksum.h"
#include "base/error.h"
#include "base/random.h"
#include "data/answers/quadratic.h"

namespace mnemo::data {
namespace {

constexpr int64_t kStart = 1;        // "now the answer"
constexpr int64_t kFirstSymbol = 2;  // after padding and start

}  // namespace

const std::vector<std::string>& AlgorithmicOptions::tasks() {
  static const std::vector<std::string> names = {"copy", "reverse", "retrieval", "quadratic"};
  return names;
}

void AlgorithmicOptions::validate(const base::Where& where) const {
  where.require(task != "retrieval" || (num_pairs <= num_keys && num_pairs <= alphabet), "num_pairs",
                "expected at most num_keys = {} and alphabet = {}, found {}, because the keys and values of a sample "
                "are all different",
                num_keys, alphabet, num_pairs);
  const AlgorithmicOptions usual;
  const bool repeats = task == "copy" || task == "reverse", retrieves = task == "retrieval";
  const auto require_used = [&](bool used, const char* key, int64_t value, int64_t usual_value) {
    where.require(used || value == usual_value, key, "has no effect with task = \"{}\"; leave it out, found {}", task,
                  value);
  };
  require_used(repeats, "num_symbols", num_symbols, usual.num_symbols);
  require_used(repeats || retrieves, "alphabet", alphabet, usual.alphabet);
  require_used(retrieves, "num_pairs", num_pairs, usual.num_pairs);
  require_used(retrieves, "num_keys", num_keys, usual.num_keys);
  answer.require_cut(length(), where);
}

int64_t AlgorithmicOptions::answer_length() const {
  if (task == "quadratic") return kQuadraticFields * kFieldLength;
  if (task == "retrieval") return 1;
  return task == "copy" ? 2 * num_symbols : num_symbols;
}

int64_t AlgorithmicOptions::length() const {
  // The question, then the token that starts the answer, then the answer without its last token.
  if (task == "quadratic") return kFieldLength + answer_length();
  const int64_t asked = task == "retrieval" ? 2 * num_pairs + 1 : num_symbols;
  return asked + answer_length();
}

AlgorithmicTask::AlgorithmicTask(AlgorithmicOptions options, int64_t seed) : options_(std::move(options)), seed_(seed) {
  base::check_options(options_);
}

int64_t AlgorithmicTask::vocabulary_size() const {
  if (options_.task == "quadratic") return static_cast<int64_t>(kQuadraticAlphabet.size());
  if (options_.task == "retrieval") return options_.alphabet + 1 + options_.num_keys;
  return options_.alphabet + kFirstSymbol;
}

int64_t AlgorithmicTask::result_length() const { return options_.task == "quadratic" ? kFieldLength : answer_length(); }

std::optional<std::string> AlgorithmicTask::text_of(const SampleBatch& batch, int64_t row) const {
  if (options_.task != "quadratic") return std::nullopt;
  const at::Tensor inputs = batch.inputs[row].contiguous();
  std::vector<int64_t> tokens(inputs.const_data_ptr<int64_t>(), inputs.const_data_ptr<int64_t>() + inputs.numel());
  tokens.push_back(batch.targets[row][-1].item<int64_t>());
  return quadratic_text(tokens);
}

uint64_t AlgorithmicTask::fingerprint() const {
  AlgorithmicOptions samples = options_;
  samples.answer = {};  // divides and scores the generated samples
  base::Fingerprint sum;
  for (const char c : base::to_json(base::write_options(samples), -1)) sum.mix(static_cast<unsigned char>(c));
  return sum.value();
}

double AlgorithmicTask::chance() const {
  const int64_t symbols = options_.task == "quadratic" ? vocabulary_size() - kFirstSymbol : options_.alphabet;
  return 1.0 / static_cast<double>(symbols);
}

std::vector<int64_t> AlgorithmicTask::sample(Part part, int64_t step, int64_t row) const {
  base::Random random{static_cast<uint64_t>(seed_), static_cast<uint64_t>(part), static_cast<uint64_t>(step),
                      static_cast<uint64_t>(row)};
  if (options_.task == "quadratic") return make_quadratic(random);
  std::vector<int64_t> out;
  if (options_.task == "retrieval") {
    const auto pairs = static_cast<size_t>(options_.num_pairs);
    const auto draw = [&](int64_t first, int64_t count) {
      std::vector<int64_t> all(static_cast<size_t>(count));
      std::iota(all.begin(), all.end(), first);
      random.shuffle(all, pairs);
      return all;
    };
    const auto keys = draw(options_.alphabet + 1, options_.num_keys);
    const auto values = draw(0, options_.alphabet);
    for (size_t i = 0; i < pairs; ++i) out.insert(out.end(), {keys[i], values[i]});
    const auto asked = static_cast<size_t>(random.below(pairs));
    out.insert(out.end(), {keys[asked], options_.alphabet, values[asked]});
    return out;
  }
  for (int64_t i = 0; i < options_.num_symbols; ++i) {
    out.push_back(kFirstSymbol + static_cast<int64_t>(random.below(static_cast<uint64_t>(options_.alphabet))));
  }
  const std::vector<int64_t> x = out;
  out.push_back(kStart);
  if (options_.task == "copy") {
    out.insert(out.end(), x.begin(), x.end());
    out.insert(out.end(), x.begin(), x.end());
  } else {
    out.insert(out.end(), x.rbegin(), x.rend());
  }
  return out;
}

SampleBatch AlgorithmicTask::batch(Part part, int64_t number, int64_t batch_size) const {
  base::require(batch_size > 0 && number >= 0, "batch {} of {} samples", number, batch_size);
  const int64_t length = this->length();
  SampleBatch out{at::empty({batch_size, length}, at::kLong),
                  at::empty({batch_size, length}, at::kLong),
                  at::zeros({batch_size, length}, at::kBool),
                  {}};
  for (int64_t b = 0; b < batch_size; ++b) {
    const std::vector<int64_t> tokens = sample(part, number, b);
    base::ensure(static_cast<int64_t>(tokens.size()) == length + 1, "a sample of {} tokens, not {}", tokens.size(),
                 length + 1);
    std::copy_n(tokens.begin(), length, out.inputs.mutable_data_ptr<int64_t>() + b * length);
    std::copy_n(tokens.begin() + 1, length, out.targets.mutable_data_ptr<int64_t>() + b * length);
  }
  out.answer.narrow(1, length - answer_length(), answer_length()).fill_(true);
  // Only fields have padding in an answer; in retrieval, 0 is a value.
  out.scored = options_.task == "quadratic" ? out.answer.logical_and(out.targets.ne(0)) : out.answer;
  return out;
}

}  // namespace mnemo::data
