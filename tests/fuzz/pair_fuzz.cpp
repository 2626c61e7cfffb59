#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/pairs/pair_text.h"
#include "options_check.h"

namespace {

/// A file without a place on a disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text) : file_(memfd_create("pairs", MFD_CLOEXEC)) {
    mnemo::fuzz::demand(file_ >= 0 && write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size()),
                        "a file in memory");
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

/// `apart`: characters that occur in no side.
void check(const mnemo::data::TextPairs& part, bool documents, const char* apart) {
  using namespace mnemo;
  for (const data::TextPair& pair : part.pairs) {
    for (const std::string* side : {&pair.source, &pair.target}) {
      fuzz::demand(!side->empty() && side->find_first_of(apart) == std::string::npos, "a side of a pair");
      fuzz::demand(!base::first_invalid_utf8(*side), "a side of a pair is UTF-8");
    }
    fuzz::demand(documents ? pair.document >= 0 : pair.document == -1, "the document of a pair");
  }
  fuzz::demand(part.empty.count >= 0, "pairs without a side");
}

}  // namespace

/// Pairs of a translation: read, or rejected with an InputError. The first byte chooses the columns and whether there
/// is a header; columns 3: the rest is two files, separated by the byte 0x1E.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  data::PairTextOptions options;
  const int layout = data[0] % 4;
  const std::size_t middle = layout == 3 ? std::min(input.find('\x1e'), input.size()) : input.size();
  const MemoryFile first(input.substr(0, middle)), second(input.substr(std::min(middle + 1, input.size())));
  options.train = first.path();
  options.header = data[0] / 4 % 2 != 0;
  if (layout == 1) options.source_column = 3;
  if (layout == 2) options.document_column = 1;
  if (layout == 2) options.source_column = options.target_column = 2;
  if (layout == 3) options.train_target = second.path();
  fuzz::only_input_errors([&] {
    const data::PairSets sets = data::read_pairs(options);
    fuzz::demand(!sets.train.pairs.empty(), "training pairs");
    for (const data::Part part : {data::Part::train, data::Part::valid, data::Part::test})
      check(sets.part(part), layout == 2, layout == 3 ? "\n" : "\n\t");
    if (layout != 2) return;
    for (const data::TextPair& held_out : sets.test.pairs) {
      for (const data::TextPair& pair : sets.train.pairs)
        fuzz::demand(pair.document != held_out.document, "a document stays whole");
    }
  });
  return 0;
}
