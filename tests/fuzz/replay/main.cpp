// Runs a libFuzzer target without libFuzzer: every file of the corpus unchanged, then random mutations of the files.
//   PROGRAM [--runs=N] [--seed=N] [--seeds=N] [--max-len=N] CORPUS_FOLDER_OR_FILE...
// --runs: mutations of each of --seeds seeds, from --seed on.
// A finding is a crash, a hang or a sanitizer report. If MNEMO_FUZZ_KEEP is set, the last input is then in `last-input`
// in the working folder.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Mutator {
 public:
  Mutator(std::uint64_t seed, const std::vector<Bytes>& corpus) : rng_(seed), corpus_(corpus) {}

  Bytes next(std::size_t max_len) {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (std::size_t step = 1 + below(4); step > 0; --step) mutate(bytes);
    if (bytes.size() > max_len) bytes.resize(max_len);
    return bytes;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : rng_() % n; }

  void mutate(Bytes& bytes) {
    static const std::string interesting = "{}[]\",:=\\\n\0\xff\x80-09.eE#'";
    const std::size_t at = below(bytes.size());
    switch (below(8)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<std::uint8_t>(below(256));
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<std::uint8_t>(interesting[below(interesting.size())]));
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4: {
        const std::size_t length = std::min(bytes.size() - at, below(16));
        bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
        break;
      }
      case 5: {  // Repeat a piece, sometimes many times: depth and length limits.
        const std::size_t length = std::min(bytes.size() - at, 1 + below(16));
        const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                          bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
        for (std::size_t copy = 1 + below(below(20) == 0 ? 2000 : 8); copy > 0; --copy)
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.begin(), piece.end());
        break;
      }
      case 6: {  // Join with another file of the corpus.
        const Bytes& other = corpus_[below(corpus_.size())];
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())), other.end());
        break;
      }
      default:  // A number at a limit.
        if (bytes.size() >= 8) {
          static const std::uint64_t borders[] = {0,          1,     0x7f,       0xff,       0x7fff'ffff,
                                                  ~0ull >> 1, ~0ull, 1ull << 40, 1ull << 63, 100'000'000};
          const std::uint64_t value = borders[below(std::size(borders))];
          const std::size_t start = below(4) == 0 ? 0 : below(bytes.size() - 7);
          for (std::size_t i = 0; i < 8; ++i) bytes[start + i] = static_cast<std::uint8_t>(value >> (8 * i));
        }
    }
  }

  std::mt19937_64 rng_;
  const std::vector<Bytes>& corpus_;
};

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t runs = 20'000, seed = 1, seeds = 1;
  std::size_t max_len = 1 << 16;
  std::vector<Bytes> corpus;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const char* name) -> const char* {
      return argument.rfind(name, 0) == 0 ? argument.c_str() + std::string(name).size() : nullptr;
    };
    if (const char* text = value("--runs="))
      runs = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--seed="))
      seed = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--seeds="))
      seeds = std::strtoull(text, nullptr, 10);
    else if (const char* text = value("--max-len="))
      max_len = std::strtoull(text, nullptr, 10);
    else if (std::filesystem::is_directory(argument)) {
      std::vector<std::filesystem::path> paths;
      for (const auto& entry : std::filesystem::directory_iterator(argument))
        if (entry.is_regular_file()) paths.push_back(entry.path());
      std::sort(paths.begin(), paths.end());
      for (const auto& path : paths) corpus.push_back(read_all(path));
    } else if (std::filesystem::is_regular_file(argument)) {
      corpus.push_back(read_all(argument));
    } else {
      std::cerr << "no such file, folder or option: " << argument << "\n";
      return 2;
    }
  }
  if (corpus.empty()) {
    std::cerr << "no seed file: name the folder of the corpus\n";
    return 2;
  }
  const bool keep = std::getenv("MNEMO_FUZZ_KEEP") != nullptr;
  const auto run = [&](const Bytes& bytes) {
    if (keep)
      std::ofstream("last-input", std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  };
  run({});
  for (const Bytes& bytes : corpus) run(bytes);
  for (std::uint64_t last = seed + seeds; seed < last; ++seed) {
    Mutator mutator(seed, corpus);
    for (std::uint64_t i = 0; i < runs; ++i) run(mutator.next(max_len));
  }
  std::cout << corpus.size() << " seed files and " << seeds * runs << " mutations: no finding\n";
}
