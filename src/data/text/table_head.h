#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "data/text/table.h"

namespace mnemo::data {

/// The first records of a file, by which its kind is recognised. All are empty for a folder, a pattern and what is no
/// text in UTF-8.
struct TableHead {
  std::vector<std::vector<std::string>> rows;  ///< of a table with tabs or of CSV, empty lines left out
  std::vector<base::Node> records;             ///< of JSON lines

  /// Number of columns that all rows have; 0 if they differ, or if there is no row.
  size_t columns() const;
  /// How many different values a column has, without the first `skipped` rows.
  size_t distinct(size_t column, size_t skipped = 0) const;
};

/// Reads at most 200 records from the first 64 KiB, unpacked, or from more where they hold no two lines; what is cut
/// off at their end is left out. `kind` is that of the file's name unless it is given.
TableHead read_table_head(const std::string& path, std::optional<TableKind> kind = {});

/// Whether the word is one of these, whatever its case.
bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words);

}  // namespace mnemo::data
