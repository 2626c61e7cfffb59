
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "data/images/image_layout.h"
#include "data/text/lines.h"
#include "data/unpack.h"

// Data sets whose images are stored consecutively in a few files.
namespace mnemo::data {
namespace {

constexpr uint64_t kMaxRawBytes = uint64_t{1} << 33;
constexpr int64_t kCifarSide = 32;

/// Uses the lines of a file as class names if it exists, otherwise the numbers 0 to count - 1.
void name_classes(ClassNames& classes, const std::string& names_file, int64_t count) {
  if (!base::path_exists(names_file)) {
    for (int64_t i = 0; i < count; ++i) classes.add(std::to_string(i));
    return;
  }
  int64_t lines = 0;
  for_each_line(text::TextSource(names_file), 1 << 16, [&](const LinePlace&, std::string_view line) {
    if (line.empty()) return;
    base::require(classes.add(std::string(line)) == lines++, "{}: expected {} different names, found {} twice",
                  names_file, count, base::in_quotes(line));
  });
  base::require(static_cast<int64_t>(classes.names().size()) == count, "{}: expected {} names, found {}", names_file,
                count, classes.names().size());
}

int32_t max_label(const std::vector<int32_t>& labels) {
  return labels.empty() ? -1 : *std::max_element(labels.begin(), labels.end());
}

/// A file in MNIST's format: 0, 0, 8 (bytes), number of dimensions, the dimensions as 32-bit big-endian numbers, the
/// data.
struct IdxFile {
  std::vector<int64_t> dims;
  std::vector<uint8_t> data;
};

/// The dimensions that a header names.
std::vector<int64_t> idx_dims(const std::string& path, std::string_view header, size_t rank) {
  std::vector<uint8_t> bytes(header.begin(), header.end());
  base::require(bytes.size() == 4 + 4 * rank && bytes[0] == 0 && bytes[1] == 0,
                "{}: expected an IDX file, found something else", path);
  base::require(bytes[2] == 8 && bytes[3] == rank,
                "{}: expected IDX bytes (type 8) of {} dimensions, found type {} of {}", path, rank, bytes[2],
                bytes[3]);
  std::vector<int64_t> dims;
  uint64_t product = 1;
  for (size_t d = 0; d < rank; ++d) {
    uint64_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | bytes[4 + 4 * d + i];
    base::require(size == 0 || product <= kMaxRawBytes / size, "{}: its dimensions ask for more than {} bytes", path,
                  kMaxRawBytes);
    product *= size;
    dims.push_back(static_cast<int64_t>(size));
  }
  return dims;
}

/// Packed or not by its first bytes, not by its name.
Packing packing_inside(const std::string& path) {
  const base::FileReader file(path);
  char start[2] = {};
  if (file.size() >= sizeof start) file.read_at(0, start, sizeof start);
  return std::string_view(start, sizeof start) == "\x1f\x8b" ? Packing::gzip : Packing::none;
}

/// Stops unpacking with an error as soon as a file gives more bytes than its header says.
IdxFile read_idx(const std::string& path, size_t rank) {
  const size_t header_size = 4 + 4 * rank;
  IdxFile file;
  std::string header;
  size_t expected = 0;
  unpack(path, packing_inside(path), [&](std::string_view piece) {
    if (const size_t missing = header_size - header.size(); missing > 0) {
      header.append(piece.substr(0, missing));
      piece.remove_prefix(std::min(missing, piece.size()));
      if (header.size() < header_size) return;
      file.dims = idx_dims(path, header, rank);
      expected = 1;
      for (const int64_t dim : file.dims) expected *= static_cast<size_t>(dim);
    }
    base::require(piece.size() <= expected - file.data.size(), "{}: expected {} bytes after the header, found more",
                  path, expected);
    file.data.insert(file.data.end(), piece.begin(), piece.end());
  });
  if (file.dims.empty()) idx_dims(path, header, rank);
  base::require(file.data.size() == expected, "{}: expected {} bytes after the header, found {}", path, expected,
                file.data.size());
  return file;
}

/// The labels file for an images file: "train-labels-idx1-ubyte" for "train-images-idx3-ubyte", compressed or not.
std::string labels_beside(const std::string& images) {
  const std::filesystem::path path(images);
  std::string name = path.filename().string();
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t at = name.find(from);
    if (at != std::string::npos) name.replace(at, from.size(), to);
  };
  replace("images", "labels");
  replace("idx3", "idx1");
  base::require(name != path.filename().string(),
                "{}: expected a name with \"images\" in it, so that the labels file can be found next to it", images);
  const std::string plain = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
  for (const std::string& candidate : {name, plain, plain + ".gz"}) {
    const std::string beside = (path.parent_path() / candidate).string();
    if (base::path_exists(beside)) return beside;
  }
  base::input_error("{}: its labels are missing; expected {} next to it", images, name);
}

FoundImages idx_part(const std::string& images) {
  IdxFile pixels = read_idx(images, 3);
  const std::string labels_path = labels_beside(images);
  const IdxFile labels = read_idx(labels_path, 1);
  base::require(labels.dims[0] == pixels.dims[0], "{}: {} labels for {} images of {}", labels_path, labels.dims[0],
                pixels.dims[0], images);
  base::require(pixels.dims[0] > 0 && pixels.dims[1] > 0 && pixels.dims[2] > 0, "{}: expected images, found [{},{},{}]",
                images, pixels.dims[0], pixels.dims[1], pixels.dims[2]);
  return {raw_images({images, std::move(pixels.data), pixels.dims[1], pixels.dims[2], 1, false}),
          {labels.data.begin(), labels.data.end()}};
}

/// The images file of a folder, for training or for the other part.
std::string idx_file(const std::string& folder, bool training) {
  std::vector<std::string> found;
  for (const std::string& name : base::list_folder(folder)) {
    if (name.find("images") != std::string::npos && name.find("idx3") != std::string::npos &&
        name.starts_with("train") == training)
      found.push_back(name);
  }
  if (!training && found.empty()) return {};
  base::require(found.size() == 1, "{}: expected one file {}images*idx3*, found {}", folder,
                training ? "train-" : "of test ", found.size());
  return base::join_path(folder, found.front());
}

struct CifarLabels {
  int64_t bytes, position, classes;
  const char* names;
};

FoundImages cifar_part(const std::string& folder, const std::vector<std::string>& names, const CifarLabels& form) {
  constexpr int64_t kPixels = 3 * kCifarSide * kCifarSide;
  const int64_t record = form.bytes + kPixels;
  RawImages images{folder, {}, kCifarSide, kCifarSide, 3, true};
  FoundImages part;
  for (const std::string& name : names) {
    const std::string path = base::join_path(folder, name), bytes = base::read_file(path, kMaxRawBytes);
    base::require(!bytes.empty() && static_cast<int64_t>(bytes.size()) % record == 0,
                  "{}: expected records of {} bytes, found {} bytes", path, record, bytes.size());
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(record)) {
      const auto label = static_cast<uint8_t>(bytes[at + static_cast<size_t>(form.position)]);
      base::require(label < form.classes, "{}: image {}: expected a label of 0 to {}, found {}", path,
                    at / static_cast<size_t>(record), form.classes - 1, label);
      part.labels.push_back(label);
      const char* pixels = bytes.data() + at + form.bytes;
      images.bytes.insert(images.bytes.end(), pixels, pixels + kPixels);
    }
  }
  part.source = raw_images(std::move(images));
  return part;
}

}  // namespace

FoundSet find_idx(const ImageOptions& options) {
  FoundSet set;
  const bool folder = base::is_folder(options.train);
  set.train = idx_part(folder ? idx_file(options.train, true) : options.train);
  if (!options.valid.empty()) set.valid = idx_part(options.valid);
  const std::string test = !options.test.empty() ? options.test : folder ? idx_file(options.train, false) : "";
  if (!test.empty()) set.test = idx_part(test);
  const int32_t most = max_label(set.train.labels);
  name_classes(set.classes, "", most + 1);
  for (const auto& [path, part] : {std::pair(options.valid, &set.valid), {test, &set.test}}) {
    base::require(!part->has_value() || max_label((*part)->labels) <= most,
                  "{}: an image has class {}, those of training end at {} ({})", path,
                  part->has_value() ? max_label((*part)->labels) : 0, most, options.train);
  }
  return set;
}

FoundSet find_cifar(const ImageOptions& options) {
  const bool ten = options.format == ImageOptions::Format::cifar10,
             coarse = options.labels == ImageOptions::Labels::coarse;
  const CifarLabels form = ten      ? CifarLabels{1, 0, 10, "batches.meta.txt"}
                           : coarse ? CifarLabels{2, 0, 20, "coarse_label_names.txt"}
                                    : CifarLabels{2, 1, 100, "fine_label_names.txt"};
  FoundSet set;
  name_classes(set.classes, base::join_path(options.train, form.names), form.classes);
  std::vector<std::string> train = {"train.bin"};
  if (ten) train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
  set.train = cifar_part(options.train, train, form);
  set.test = cifar_part(options.train, {ten ? "test_batch.bin" : "test.bin"}, form);
  return set;
}

}  // namespace mnemo::data
