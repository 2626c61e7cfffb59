#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "../support/temporary_folder.h"
#include "data/answers/labelled_files.h"
#include "options_check.h"

/// A table of labelled texts, in a format of GLUE or with names of columns: texts and labels, or an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  static const test::TemporaryFolder folder;
  const std::string path = folder / "table.tsv";
  std::ofstream(path, std::ios::binary) << std::string_view(reinterpret_cast<const char*>(data), size);
  for (const data::LabelledColumns& columns :
       {data::LabelledColumns{}, data::LabelledColumns{"text", "", "label"}, data::LabelledColumns{"a", "b", "c"}}) {
    fuzz::only_input_errors([&] {
      for (const data::LabelledText& text : data::read_labelled_table(path, columns).texts) {
        fuzz::demand(text.second.has_value() != columns.second.empty() || columns.text.empty(), "two texts");
        fuzz::demand(text.where().starts_with(path), "a place");
      }
    });
  }
  return 0;
}
