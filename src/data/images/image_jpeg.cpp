#include <csetjmp>
#include <cstddef>
#include <cstdio>

// In this order: jpeglib.h needs FILE and size_t.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "data/images/image_codec.h"

namespace mnemo::data {
namespace {

constexpr std::string_view kFormat = "JPEG";
constexpr std::string_view kExif{"Exif\0\0", 6}, kXmp{"http://ns.adobe.com/xap/1.0/\0", 29};
// Each scan of a progressive file goes through the whole image, however few bytes it takes. Real files have about ten;
// the largest image may have 22.
constexpr int kMaxScans = 100;
constexpr int64_t kMaxScannedPixels = 4'000'000'000;

/// libjpeg's error message, and the jump back to our code.
struct JpegErrors {
  jpeg_error_mgr manager;  // must be first: libjpeg passes a pointer to it
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

JpegErrors& errors_of(j_common_ptr info) { return *reinterpret_cast<JpegErrors*>(info->err); }

[[noreturn]] void leave(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  info->err->format_message(info, errors.message);
  std::longjmp(errors.back, 1);
}

extern "C" {
void mnemo_jpeg_error(j_common_ptr info) { leave(info); }
void mnemo_jpeg_message(j_common_ptr info, int level) {
  if (level >= 0) return;  // a trace message, not a warning
  ++info->err->num_warnings;
  // libjpeg would fill missing data with grey; here it is an error.
  const int code = info->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) leave(info);
}
void mnemo_jpeg_silent(j_common_ptr) {}
void mnemo_jpeg_progress(j_common_ptr info) {
  const jpeg_decompress_struct& file = *reinterpret_cast<j_decompress_ptr>(info);
  const int64_t most = std::min<int64_t>(kMaxScans,
                                         kMaxScannedPixels / (int64_t{file.image_width} * file.image_height));
  if (file.input_scan_number <= most) return;
  JpegErrors& errors = errors_of(info);
  std::snprintf(
      errors.message, sizeof errors.message,
      "%u x %u pixels in more than %d scans, expected at most that; store it with fewer, or as a baseline file",
      file.image_width, file.image_height, static_cast<int>(most));
  std::longjmp(errors.back, 1);
}
}

/// Decodes one file with libjpeg. An error inside libjpeg jumps back into the member function that called it. The
/// frames of that function and of libjpeg contain nothing that needs a destructor; such objects are members of this
/// class or in the caller's frame.
class JpegFile {
 public:
  JpegFile(std::string_view bytes, const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = mnemo_jpeg_error;
    errors_.manager.emit_message = mnemo_jpeg_message;
    errors_.manager.output_message = mnemo_jpeg_silent;
    progress_.progress_monitor = mnemo_jpeg_progress;
    if (!read_header(bytes)) {
      jpeg_destroy_decompress(&info_);
      fail();
    }
  }
  ~JpegFile() { jpeg_destroy_decompress(&info_); }
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;

  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }

  int orientation() const {
    std::string_view exif, xmp;
    for (auto marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (marker->marker != JPEG_APP0 + 1) continue;
      if (exif.empty() && data.starts_with(kExif)) exif = data.substr(kExif.size());
      if (data.starts_with(kXmp)) xmp = data.substr(kXmp.size());
    }
    return orientation_of(exif, xmp);
  }

  /// A block of 64 values takes at least one bit, so a file cannot make us allocate much more memory than its size
  /// justifies. With arithmetic coding, which hardly any program writes, a few bytes can be any number of blocks.
  void check_plausible(size_t bytes) const {
    base::require(!info_.arith_code, "{}: {}: expected Huffman coding, found arithmetic coding", name_, kFormat);
    uint64_t blocks = 0;
    for (int i = 0; i < info_.num_components; ++i) {
      blocks += uint64_t{info_.comp_info[i].width_in_blocks} * info_.comp_info[i].height_in_blocks;
    }
    base::require(blocks <= 8 * uint64_t{bytes},
                  "{}: {}: {} bytes are too few for {} x {} pixels; the file is truncated or damaged", name_, kFormat,
                  bytes, width(), height());
  }

  Image decode() {
    const J_COLOR_SPACE stored = info_.jpeg_color_space;
    const bool inks = stored == JCS_CMYK || stored == JCS_YCCK;
    base::require(inks || stored == JCS_GRAYSCALE || stored == JCS_YCbCr || stored == JCS_RGB,
                  "{}: {}: expected grey, YCbCr, RGB, CMYK or YCCK, found {} components of an unknown kind", name_,
                  kFormat, info_.num_components);
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    Image image(height(), width());
    std::vector<uint8_t> ink_row(inks ? static_cast<size_t>(width()) * 4 : 0);
    if (!(inks ? decode_inks(image, ink_row.data()) : decode_rows(image))) fail();
    return image;
  }

 private:
  bool read_header(std::string_view bytes) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool decode_rows(Image& image) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_start_decompress(&info_);
    constexpr JDIMENSION kRows = 16;  // one row of blocks is read at a time
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW rows[kRows];
      const JDIMENSION count = std::min(kRows, info_.output_height - info_.output_scanline);
      for (JDIMENSION i = 0; i < count; ++i) rows[i] = image.row(info_.output_scanline + i);
      jpeg_read_scanlines(&info_, rows, count);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  bool decode_inks(Image& image, uint8_t* inks) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      uint8_t* out = image.row(info_.output_scanline);
      jpeg_read_scanlines(&info_, &inks, 1);
      for (int64_t x = 0; x < image.width; ++x) {
        // Stored inverted: (255-C)(255-K) is the product of the stored values.
        for (int c = 0; c < 3; ++c)
          out[x * 3 + c] = static_cast<uint8_t>((inks[x * 4 + c] * inks[x * 4 + 3] + 127) / 255);
      }
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  [[noreturn]] void fail() const {
    base::input_error("{}: {}: {}", name_, kFormat,
                      std::string_view(errors_.message, strnlen(errors_.message, sizeof errors_.message)));
  }

  const std::string& name_;
  jpeg_decompress_struct info_{};
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
};

Image decode_jpeg(std::string_view bytes, const std::string& name, const ImageLimits& limits) {
  JpegFile file(bytes, name);
  check_image_size(file.height(), file.width(), name, kFormat, limits);
  file.check_plausible(bytes.size());
  const int orientation = file.orientation();
  return oriented(file.decode(), orientation);
}

ImageHeader jpeg_header(std::string_view bytes, const std::string& name, const ImageLimits& limits) {
  const JpegFile file(bytes, name);
  check_image_size(file.height(), file.width(), name, kFormat, limits);
  return oriented_header(kFormat, file.height(), file.width(), file.orientation());
}

}  // namespace

const ImageCodec& jpeg_codec() {
  static constexpr ImageCodec kCodec{kFormat, [](std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); },
                                     decode_jpeg, jpeg_header};
  return kCodec;
}

}  // namespace mnemo::data
