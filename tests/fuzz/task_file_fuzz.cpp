#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/ignore_target.h"
#include "data/answers/task_file.h"
#include "options_check.h"

/// A file of samples: read, or rejected with an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  fuzz::only_input_errors([&] {
    data::TaskSamples samples;
    for (int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      samples.add_line({"file.tsv", number}, line);
    }
    samples.finish("file.tsv");
    const int64_t last = samples.size() - 1;
    const data::SampleBatch batch = samples.batch({0, last});
    fuzz::demand(
        batch.inputs.size(1) <= samples.length() && batch.inputs.max().item<int64_t>() < samples.vocabulary_size(),
        "a batch");
    fuzz::demand(batch.answer.any(1).all().item<bool>() &&
                     batch.scored.logical_and(batch.answer).eq(batch.scored).all().item<bool>(),
                 "answers");
    for (const data::Batch& segment : data::cut_segments(batch, 3)) {
      fuzz::demand(segment.num_targets == data::token_targets(segment).ne(base::kIgnoreTarget).sum().item<int64_t>(),
                   "targets of a segment");
    }
  });
  return 0;
}
