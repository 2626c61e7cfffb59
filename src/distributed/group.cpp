#include "distributed/group.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <string_view>

#include "base/checksum.h"
#include "base/error.h"
#include "base/machine.h"

namespace mnemo::distributed {
namespace {

struct Library {
  std::string name, build;
};

/// Called for each library of this process, until it is the one asked for.
int find_build(dl_phdr_info* info, size_t, void* wanted) {
  auto& library = *static_cast<Library*>(wanted);
  if (!std::string_view(info->dlpi_name).ends_with("/" + library.name)) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + part.p_vaddr);
    const auto whole = [](size_t size) { return (size + 3) / 4 * 4; };
    for (const auto* end = at + part.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const unsigned char* content = at + sizeof(note) + whole(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof(ELF_NOTE_GNU)) {
        for (size_t byte = 0; byte < note.n_descsz; ++byte) library.build += fmt::format("{:02x}", content[byte]);
      }
      at = content + whole(note.n_descsz);
    }
  }
  return 1;
}

/// The linker's mark of a library that this process has loaded; empty where it has none.
std::string build_of(const std::string& name) {
  Library library{name, ""};
  dl_iterate_phdr(find_build, &library);
  return library.build;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> program_entries() {
  // The version is that of the headers; a rank may have loaded another library than it was linked with.
  return {{"program (Mnemo)", base::sha256_file("/proc/self/exe")},
          {"LibTorch", fmt::format("{}, build {}", base::this_machine().libtorch, build_of("libtorch_cpu.so"))}};
}

void Group::require_same(const std::vector<std::pair<std::string, std::string>>& entries, const std::string& what) {
  std::string mine = base::host_name();
  for (const auto& [name, value] : entries) mine += "\n" + value;
  const std::vector<std::string> all = gather(mine);
  const auto lines = [](const std::string& text) {
    std::vector<std::string> found;
    for (size_t from = 0, end = 0; end != std::string::npos; from = end + 1) {
      end = text.find('\n', from);
      found.push_back(text.substr(from, end == std::string::npos ? end : end - from));
    }
    return found;
  };
  const std::vector<std::string> first = lines(all.front());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> other = lines(all[rank]);
    base::require(other.size() == first.size(), "{}: rank {} ({}) has {} entries, rank 0 ({}) {}", what, rank, other[0],
                  other.size() - 1, first[0], first.size() - 1);
    for (size_t i = 1; i < first.size(); ++i) {
      base::require(other[i] == first[i], "{}: rank {} ({}) has another {} than rank 0 ({}): expected {}, found {}",
                    what, rank, other[0], entries[i - 1].first, first[0], first[i], other[i]);
    }
  }
}

}  // namespace mnemo::distributed
