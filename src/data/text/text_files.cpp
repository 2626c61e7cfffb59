#include "data/text/text_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/glob.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "data/unpack.h"
#include "text/utf8_error.h"

namespace mnemo::data {
namespace {

namespace fs = std::filesystem;

constexpr base::ReadLimits kRecordLimits{.max_bytes = size_t{64} << 20, .max_depth = 64, .max_values = 1 << 20};

bool has_wildcard(std::string_view name) { return name.find_first_of("*?") != std::string_view::npos; }

bool is_text_name(std::string_view name, bool json) {
  if (packing_of(name) != Packing::none) name.remove_suffix(name.size() - name.rfind('.'));
  if (!json) return name.ends_with(".txt");
  return name.ends_with(".jsonl") || name.ends_with(".ndjson") || name.ends_with(".json");
}

/// Adds the files below `folder` that the names from `at` on match.
void match(const fs::path& folder, fs::path::const_iterator at, const fs::path::const_iterator& end,
           std::vector<std::string>& files) {
  const std::string name = at->string();
  const bool last = std::next(at) == end;
  const auto take = [&](const fs::path& path) {
    if (last && !base::is_folder(path.string()) && base::path_exists(path.string())) files.push_back(path.string());
    if (!last && base::is_folder(path.string())) match(path, std::next(at), end, files);
  };
  if (!has_wildcard(name)) return take(folder / name);
  for (const std::string& found : base::list_folder(folder.empty() ? "." : folder.string())) {
    if (base::matches(name, found) && !(found.starts_with(".") && !name.starts_with("."))) take(folder / found);
  }
}

/// Whether an entry of a folder is a file, or a link to one. A link that leads nowhere, or to itself, is none.
bool is_file(const fs::directory_entry& entry) {
  std::error_code error;
  const bool found = entry.is_regular_file(error);
  const bool nowhere = error == std::errc::too_many_symbolic_link_levels ||
                       error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  base::require(!error || nowhere, "{}: {}", base::printable(entry.path().string(), 400), error.message());
  return found;
}

/// One text after another, each piece by piece.
class Joined {
 public:
  using Use = std::function<void(std::string_view)>;
  Joined(const std::string& between, const Use& use) : between_(between), use_(use) {}

  void put(std::string_view piece) {
    if (piece.empty()) return;
    if (ended_ && !last_.empty()) {
      if (last_ != "\n") use_("\n");
      if (!between_.empty()) use_(between_);
    }
    ended_ = false;
    last_ = piece.back();
    use_(piece);
  }
  void end() { ended_ = true; }

 private:
  const std::string& between_;
  const Use& use_;
  std::string last_;  // character; empty: nothing has come yet
  bool ended_ = true;
};

/// Checks that a file is UTF-8, piece by piece, so that the message names the file and not the text that it is a part
/// of.
class Utf8File {
 public:
  explicit Utf8File(const std::string& path) : path_(path) {}

  void put(std::string_view piece) {
    std::string joined;  // with what a character began with
    if (!pending_.empty()) piece = joined = std::exchange(pending_, {}) + std::string(piece);
    if (const auto bad = base::first_invalid_utf8(piece)) {
      const std::string_view rest = piece.substr(*bad);
      if (base::front_character(rest).length < 0) fail(offset_ + static_cast<int64_t>(*bad), rest);
      pending_ = rest;
    }
    offset_ += static_cast<int64_t>(piece.size() - pending_.size());
  }
  void finish() const {
    if (!pending_.empty()) fail(offset_, pending_);
  }

 private:
  [[noreturn]] void fail(int64_t at, std::string_view rest) const {
    text::invalid_utf8(base::printable(path_, 400), at, rest, text::kUseBytes);
  }

  const std::string& path_;
  std::string pending_;
  int64_t offset_ = 0;  // of what is pending
};

/// The text of one line of JSON lines.
std::string text_of(std::string_view line, const std::string& where, const std::string& key) {
  const base::Node record = parse_record(line, where);
  const base::Node* text = record.find(key);
  base::require(text != nullptr && text->is_string(), "{}: '{}': expected a text, found {}", where, key,
                text == nullptr ? "no such key" : text->found());
  return text->as_string();
}

void add_records(const std::string& path, const std::string& key, Joined& joined) {
  std::string line;
  int64_t number = 0;
  const auto record = [&] {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (number == 1 && line.starts_with(base::kByteOrderMark)) line.erase(0, base::kByteOrderMark.size());
    if (line.find_first_not_of(" \t") != std::string::npos) {
      joined.put(text_of(line, base::printable(path, 400) + ":" + std::to_string(number), key));
      joined.end();
    }
    line.clear();
  };
  unpack(path, packing_of(path), [&](std::string_view piece) {
    for (size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
      line += piece.substr(0, end);
      piece.remove_prefix(end + 1);
      record();
    }
    line += piece;
    base::require(line.size() <= kRecordLimits.max_bytes, "{}:{}: expected a line of at most {} bytes, found more",
                  base::printable(path, 400), number + 1, kRecordLimits.max_bytes);
  });
  if (!line.empty()) record();
}

/// Calls `use` with a file piece by piece; any_bytes: with its byte order mark.
void unpack_text(const std::string& path, bool any_bytes, const std::function<void(std::string_view)>& use) {
  std::string start;  // until it is known whether it is a byte order mark
  bool begun = any_bytes;
  unpack(path, packing_of(path), [&](std::string_view piece) {
    if (begun) return use(piece);
    start += piece;
    if (start.size() < base::kByteOrderMark.size()) return;
    begun = true;
    use(std::string_view(start).substr(start.starts_with(base::kByteOrderMark) ? base::kByteOrderMark.size() : 0));
  });
  if (!begun) use(start);
}

}  // namespace

base::Node parse_record(std::string_view line, const std::string& where) {
  base::Node record = base::parse_json(line, where, kRecordLimits);
  base::require(record.is_table(), "{}: expected an object, found {}", where, record.found());
  return record;
}

void for_each_file(const std::string& folder, const std::function<bool(const std::string&)>& use) {
  std::error_code error;
  std::string last = folder;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    last = at->path().string();
    if (at->path().filename().string().starts_with(".")) {
      at.disable_recursion_pending();
    } else if (is_file(*at) && !use(last)) {
      return;
    }
  }
  // Either entering the last folder failed, or listing the current one.
  base::require(!error, "{}: {}", base::printable(base::is_folder(last) ? last : folder, 400), error.message());
}

bool is_pattern(const std::string& path) { return has_wildcard(path) && !base::path_exists(path); }

std::vector<std::string> text_files(const std::string& path, const TextFileOptions& options) {
  std::vector<std::string> files;
  const bool json = !options.json_key.empty();
  if (is_pattern(path)) {
    const fs::path pattern(path);
    const fs::path names = pattern.relative_path();
    match(pattern.root_path(), names.begin(), names.end(), files);
    base::require(!files.empty(), "{}: no file matches", base::printable(path, 400));
  } else if (base::is_folder(path)) {
    for_each_file(path, [&](const std::string& file) {
      if (is_text_name(fs::path(file).filename().string(), json)) files.push_back(file);
      return true;
    });
    base::require(!files.empty(), "{}: expected files {} (or packed, with .gz or .zst appended), found none",
                  base::printable(path, 400), json ? ".jsonl, .ndjson or .json" : ".txt");
  } else {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_folder_of_texts(const std::string& path, bool json) {
  if (!base::is_folder(path)) return false;
  bool any = false, other = false;
  try {
    for_each_file(path, [&](const std::string& file) {
      const std::string name = fs::path(file).filename().string();
      if (name.starts_with("README") || name.starts_with("LICENSE")) return true;
      other = !is_text_name(name, json);
      any = true;
      return !other;
    });
  } catch (const base::InputError&) {
    return false;  // it may be another kind of data, whose reader reports errors
  }
  return any && !other;
}

text::TextSource open_text(const std::string& path, const TextFileOptions& options) {
  const std::vector<std::string> files = text_files(path, options);
  if (files.size() == 1 && options.json_key.empty() && packing_of(files[0]) == Packing::none)
    return text::TextSource(files[0]);
  const auto read = [files, options](const Joined::Use& use) {
    Joined joined(options.between, use);
    for (const std::string& file : files) {
      if (options.json_key.empty()) {
        Utf8File check(file);
        unpack_text(file, options.any_bytes, [&](std::string_view piece) {
          if (!options.any_bytes) check.put(piece);
          joined.put(piece);
        });
        check.finish();
      } else {
        add_records(file, options.json_key, joined);
      }
      joined.end();
    }
  };
  if (options.json_key.empty()) return text::TextSource::streamed(path, read);
  // Records are parsed once, for that takes longer than the rest: the text stays in memory.
  const auto require_few = [&](uint64_t bytes) {
    base::require(bytes <= static_cast<uint64_t>(kMaxJoinedText), "{}: expected at most {} bytes of text, found {}",
                  base::printable(path, 400), kMaxJoinedText, bytes);
    return bytes;
  };
  uint64_t bytes = 0;
  for (const std::string& file : files) bytes += unpacked_size(file, packing_of(file)) + 1 + options.between.size();
  std::string all;
  all.reserve(require_few(bytes));  // a string that grows would take three times its size
  read([&](std::string_view piece) {
    require_few(all.size() + piece.size());
    all += piece;
  });
  return text::TextSource::in_memory(path, std::move(all));
}

void for_each_text_line(const std::string& path, int64_t max_line,
                        const std::function<void(const LinePlace&, std::string_view)>& use) {
  for (const std::string& file : text_files(path)) {
    LineSplitter lines(file, max_line, use);
    unpack_text(file, false, [&](std::string_view piece) { lines.put(piece); });
    lines.finish();
  }
}

}  // namespace mnemo::data
