#pragma once

#include "bench/bench.h"

namespace mnemo::bench {

/// `mnemo serve` in this process against clients that cost little: streams beside the scheduler alone, and requests
/// beside clients that send slowly or do not read.
BenchReport bench_serving(const BenchArguments& arguments, Bars& bars);
std::vector<std::string> serving_case_names();

}  // namespace mnemo::bench
