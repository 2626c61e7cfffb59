#include "bench/bench.h"
#include "cli/application.h"
#include "cli/process_settings.h"

int main(int argc, char** argv) {
  mnemo::cli::apply_process_settings();
  return mnemo::cli::run(argc, argv, mnemo::bench::make_bench());
}
