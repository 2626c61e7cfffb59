#include <algorithm>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "base/printable.h"
#include "data/answers/labelled_files.h"
#include "data/text/text_files.h"

namespace mnemo::data {

LabelledTexts read_labelled_folder(const std::string& path, const std::vector<std::string>& wanted) {
  LabelledTexts read;
  std::vector<std::string> labels = wanted;
  if (labels.empty()) {
    for (const std::string& name : base::list_folder(path)) {
      if (!name.starts_with(".") && base::is_folder(base::join_path(path, name))) labels.push_back(name);
    }
    std::sort(labels.begin(), labels.end());
  }
  base::require(!labels.empty(), "{}: expected a folder of text files for each label, found none",
                base::printable(path, 400));
  for (const std::string& label : labels) {
    const std::string folder = base::join_path(path, label);
    base::require(base::is_plain_name(label) && base::is_folder(folder),
                  "{}: expected a folder for each label, found none for {}", base::printable(path, 400),
                  base::in_quotes(label));
    for (const std::string& file : text_files(folder)) {
      LabelledText text{.file = std::make_shared<const std::string>(file),
                        .first = {},
                        .second = {},
                        .label = label,
                        .whole_file = true};
      open_text(file).without_byte_order_mark().for_each_chunk([&](std::string_view chunk) {
        text.first += chunk;
        return true;
      });
      size_t line = 0;
      for (std::string_view rest = text.first; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        require_words(fmt::format("{}:{}", file, ++line), rest.substr(0, end), 1);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      read.texts.push_back(std::move(text));
    }
  }
  read.labels = std::move(labels);
  return read;
}

}  // namespace mnemo::data
