#include "base/process.h"
#include "bench/bench.h"
#include "cli/application.h"

int main(int argc, char** argv) {
  mnemo::base::init_process();
  return mnemo::cli::run(argc, argv, mnemo::bench::make_bench);
}
