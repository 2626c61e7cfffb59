#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "data/text/lines.h"
#include "text/text_source.h"

namespace mnemo::data {

/// How several files become one text.
struct TextFileOptions {
  std::string json_key = {};  ///< files are JSON lines, an object each: the text is this key's; empty: files are text
  std::string between = {};   ///< between two texts, after the line end of the first
  bool any_bytes = false;     ///< keep byte order marks
};

/// Most bytes of a text that is joined or unpacked, which is held in memory: 16 GiB.
inline constexpr int64_t kMaxJoinedText = int64_t{1} << 34;

/// Whether the path has `*` or `?` and is no file itself.
bool is_pattern(const std::string& path);

/// The files of a path, sorted. Throws InputError if there is none.
///   a file     itself
///   a folder   NAME.txt in it and below, or with a JSON key NAME.jsonl, .ndjson and .json; also packed: .gz, .zst; but
///              for hidden ones
///   a pattern  the files that match; `*` and `?` may be in any of its names, `texts/*/*.txt`
std::vector<std::string> text_files(const std::string& path, const TextFileOptions& options = {});

/// The object of one line of JSON lines, of at most 64 MiB. Throws InputError "WHERE: ...".
base::Node parse_record(std::string_view line, const std::string& where);

/// Calls `use` with the path of every file in a folder and those below it, in no order, until it returns false, but not
/// of files and folders whose names begin with a dot. A link to a file is one; links to folders are not followed, and
/// links that lead nowhere are left out. Throws InputError naming a folder or a link that cannot be read.
void for_each_file(const std::string& folder, const std::function<bool(const std::string& path)>& use);

/// Whether every file in a folder and below is a text, NAME.txt or a packed one (.gz, .zst), ignoring hidden files,
/// README and LICENSE. False if there is no text. json: of JSON lines, NAME.jsonl, .ndjson or .json.
bool is_folder_of_texts(const std::string& path, bool json = false);

/// Opens a text, which is read in chunks: of several files in their order, with a line end between two files, or two
/// records' texts, where there is none. Packed files are unpacked whenever the text is read, and once to measure them;
/// the texts of JSON lines are held in memory. Throws InputError naming file and line for a record
/// that is no object or lacks a string at the key, and for a text beyond kMaxJoinedText.
text::TextSource open_text(const std::string& path, const TextFileOptions& options = {});

/// Calls `use` with every line of the files of a path, unpacked piece by piece, without byte order marks; the place
/// names the file, and counts its lines. Errors as for_each_line() and unpack().
void for_each_text_line(const std::string& path, int64_t max_line,
                        const std::function<void(const LinePlace&, std::string_view)>& use);

}  // namespace mnemo::data
