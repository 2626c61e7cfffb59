#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/rounds.h"

namespace CLI {
class App;
}

namespace mnemo::bench {

struct BenchArguments {
  std::string part = "models";
  std::vector<std::string> cases, precisions, lengths;
  std::string peers = "bench/peers";
  std::string python = "python3";
  std::string bars = "bench/bars.toml";
  std::string model, pairs;     ///< translation: a trained model, and sentences with their references; empty: none
  std::string tokenizer, text;  ///< tokenizers: the folder of one, and what to encode; empty: our own
  int64_t repeats = 7;
  std::string device = "cuda";  ///< of the part `device`
  bool all = false, no_peers = false, json = false, check = false;

  /// Whether --case selects it; without --case, all cases are selected.
  bool wants(const std::string& name) const;
};

/// The result of one part of `mnemo-bench`.
struct BenchReport {
  base::Node figures = base::Node::table();   ///< for JSON
  std::string text = {};                      ///< a table, and the notes below it
  std::vector<std::string> differences = {};  ///< cases where a peer's results differ from ours; these were not timed
};

/// The parts; each checks its figures against the bars.
BenchReport bench_models(const BenchArguments& arguments, Bars& bars);
BenchReport bench_kernels(const BenchArguments& arguments, Bars& bars);
BenchReport bench_decoding(const BenchArguments& arguments, Bars& bars);
BenchReport bench_prompts(const BenchArguments& arguments, Bars& bars);
BenchReport bench_evaluation(const BenchArguments& arguments, Bars& bars);
BenchReport bench_mechanisms(const BenchArguments& arguments, Bars& bars);
BenchReport bench_images(const BenchArguments& arguments, Bars& bars);
BenchReport bench_detection(const BenchArguments& arguments, Bars& bars);
BenchReport bench_grc(const BenchArguments& arguments, Bars& bars);
BenchReport bench_translation(const BenchArguments& arguments, Bars& bars);
BenchReport bench_translation_lengths(const BenchArguments& arguments, Bars& bars);
BenchReport bench_tokenizers(const BenchArguments& arguments, Bars& bars);
BenchReport bench_device(const BenchArguments& arguments, Bars& bars);

/// The names of their cases.
std::vector<std::string> model_case_names();
std::vector<std::string> kernel_case_names();
std::vector<std::string> decoding_case_names();
std::vector<std::string> prompt_case_names();
std::vector<std::string> mechanism_case_names();
std::vector<std::string> image_case_names();
std::vector<std::string> detection_case_names();
std::vector<std::string> grc_case_names();
std::vector<std::string> translation_case_names();
std::vector<std::string> tokenizer_case_names();
std::vector<std::string> device_case_names();
/// Numbers of tokens that the device's kernels are measured with.
std::vector<std::string> device_length_names();

/// The command line of mnemo-bench. Each call builds a new one.
std::shared_ptr<CLI::App> make_bench();

}  // namespace mnemo::bench
