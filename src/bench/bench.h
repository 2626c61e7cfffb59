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
  std::string peers = "src/bench/peers";
  std::string python = "python3";
  std::string bars = "src/bench/bars.toml";
  int64_t repeats = 7;
  bool all = false, no_peers = false, json = false, check = false;

  /// Whether --case asks for it: all are meant where none is named.
  bool wants(const std::string& name) const;
};

/// What one part of `mnemo-bench` found.
struct BenchReport {
  base::Node figures = base::Node::table();   ///< for JSON
  std::string text = {};                      ///< a table, and what stands below it
  std::vector<std::string> differences = {};  ///< where a peer does not compute the same: that was not timed
};

/// The parts; each compares with the bars as it goes.
BenchReport bench_models(const BenchArguments& arguments, Bars& bars);
BenchReport bench_kernels(const BenchArguments& arguments, Bars& bars);
BenchReport bench_decoding(const BenchArguments& arguments, Bars& bars);
BenchReport bench_evaluation(const BenchArguments& arguments, Bars& bars);
BenchReport bench_mechanisms(const BenchArguments& arguments, Bars& bars);
BenchReport bench_images(const BenchArguments& arguments, Bars& bars);
BenchReport bench_grc(const BenchArguments& arguments, Bars& bars);

/// Their cases.
std::vector<std::string> model_case_names();
std::vector<std::string> kernel_case_names();
std::vector<std::string> decoding_case_names();
std::vector<std::string> mechanism_case_names();
std::vector<std::string> image_case_names();
std::vector<std::string> grc_case_names();

/// The command line of mnemo-bench. Fresh for each call.
std::shared_ptr<CLI::App> make_bench();

}  // namespace mnemo::bench
