#include "data/prepare/listops.h"

#include <fmt/format.h>

#include <memory>

#include "base/file_io.h"
#include "data/answers/listops_set.h"
#include "data/prepare/output.h"

namespace mnemo::data {
namespace {

constexpr const char* kListOpsFrom =
    "https://storage.googleapis.com/long-range-arena/lra_release.gz (folder listops-1000), or generated: leave the "
    "folder out";
constexpr std::array<const char*, 3> kListOpsFiles = {"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"};

Prepared prepare_listops(const std::string& folder, const std::string& out, const base::Node& keys) {
  const auto options = base::read_typed_options<ListOpsOptions>(keys);
  Prepared prepared;
  Output output(out, kListOpsFiles);
  std::string text;
  std::unique_ptr<base::AtomicFile> file;
  const auto begin = [&](size_t i) {
    prepared.parts.push_back({kParts[i], output.path(i), 0, 0, 0});
    file = std::make_unique<base::AtomicFile>(output.file(i));
    text = "Source\tTarget\n";
  };
  const auto write = [&] {
    output.require_going_on();
    file->write(text);
    prepared.parts.back().bytes += static_cast<int64_t>(text.size());
    text.clear();
  };
  const auto add = [&](const ListOpsExpression& expression) {
    text += fmt::format("{}\t{}\n", listops_text(expression.tokens), expression.value);
    ++prepared.parts.back().documents;
    prepared.parts.back().tokens += static_cast<int64_t>(expression.tokens.size());
    if (text.size() > size_t{1} << 20) write();
  };
  const auto end = [&] {
    write();
    file->commit();
    file.reset();
  };
  if (folder.empty()) {
    make_listops(options, [&](Part part, const ListOpsExpression& expression) {
      while (prepared.parts.size() <= static_cast<size_t>(part)) {
        if (file) end();
        begin(prepared.parts.size());
      }
      add(expression);
      return true;
    });
    end();
  } else {
    for (size_t i = 0; i < kParts.size(); ++i) {
      const std::string path = find_file(folder, {kListOpsFiles[i], fmt::format("{}.tsv", kParts[i])}, "listops",
                                         kListOpsFrom);
      begin(i);
      read_listops(path, add);
      end();
    }
  }
  std::erase_if(prepared.parts, [](const PreparedPart& part) { return part.documents == 0; });
  // Keys of generated expressions have no use for a file.
  const std::string changed = changed_keys(
      options, {"train", "valid", "test", "train_samples", "valid_samples", "test_samples", "max_depth", "max_args",
                "min_length", "max_length", "seed"});
  prepared.recipe = output.commit("Long ListOps, in the files of Long Range Arena",
                                  fmt::format("type = \"listops\"\nmax_length = {}\n{}", options.max_length, changed),
                                  prepared.parts);
  return prepared;
}

}  // namespace

DataSet listops() {
  return {.what = "Long ListOps, generated or from the Long Range Arena files",
          .from = kListOpsFrom,
          .data_type = "listops",
          .path_is_optional = true,
          .own_keys =
              [](const std::string& folder) {  // `train` alone says whether expressions are made
                return base::Node::table({{"train", folder}, {"valid", ""}, {"test", ""}});
              },
          .prepare = prepare_listops};
}

}  // namespace mnemo::data
