#include <png.h>

#include <csetjmp>
#include <cstring>

#include "base/error.h"
#include "data/images/image_codec.h"

namespace mnemo::data {
namespace {

constexpr std::string_view kPngFormat = "PNG";
constexpr uint64_t kMaxInflation = 1032;  // maximum compression ratio of deflate

/// libpng's error message, and the jump back to our code.
struct PngErrors {
  std::jmp_buf back;
  char message[256];
};

struct PngInput {
  const char* data;
  size_t left;
};

extern "C" {
[[noreturn]] void mnemo_png_error(png_structp png, png_const_charp message) {
  auto* errors = static_cast<PngErrors*>(png_get_error_ptr(png));
  std::strncpy(errors->message, message, sizeof errors->message - 1);
  std::longjmp(errors->back, 1);
}
void mnemo_png_warning(png_structp, png_const_charp) {}
void mnemo_png_read(png_structp png, png_bytep to, size_t count) {
  auto* input = static_cast<PngInput*>(png_get_io_ptr(png));
  if (count > input->left) png_error(png, "the file is truncated");
  std::memcpy(to, input->data, count);
  input->data += count;
  input->left -= count;
}
}

constexpr std::string_view kExifChunk = "eXIf";
/// XMP that is not compressed; libpng is told to leave texts alone.
constexpr std::string_view kXmpChunk{"iTXtXML:com.adobe.xmp\0\0\0", 24};

/// The rest of the first chunk whose type and data start so, wherever it stands; empty: there is none.
std::string_view chunk_of(std::string_view png, std::string_view start) {
  for (size_t at = 8; png.size() > at + 12;) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(png[at + i]);
    const std::string_view chunk = png.substr(at + 4, 4 + length);
    if (chunk.starts_with(start)) return chunk.substr(start.size());
    at += 12 + length;
  }
  return {};
}

/// Decodes one file with libpng; errors jump as described at JpegFile.
class PngFile {
 public:
  PngFile(std::string_view bytes, const std::string& name)
      : name_(name), bytes_(bytes), input_{bytes.data(), bytes.size()} {
    if (!read_header()) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      fail();
    }
  }
  ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }

  /// libpng knows what stands after the pixels only once they are read; a header needs it, too.
  int orientation() const { return orientation_of(chunk_of(bytes_, kExifChunk), chunk_of(bytes_, kXmpChunk)); }

  /// A file cannot make us allocate much more memory than its size justifies.
  void check_plausible(size_t bytes) const {
    const uint64_t stored = static_cast<uint64_t>(height()) * (png_get_rowbytes(png_, info_) + 1);
    base::require(stored <= kMaxInflation * bytes,
                  "{}: {}: {} bytes are too few for {} x {} pixels; the file is truncated or damaged", name_,
                  kPngFormat, bytes, width(), height());
  }

  Image decode() {
    if (!ask_for_rgb()) fail();
    base::ensure(png_get_rowbytes(png_, info_) == static_cast<size_t>(width()) * 3,
                 "{}: libpng gives rows of {} bytes for {} pixels", name_, png_get_rowbytes(png_, info_), width());
    Image image(height(), width());
    if (!read_rows(image)) fail();
    return image;
  }

 private:
  bool read_header() {
    if (setjmp(errors_.back) != 0) return false;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors_, mnemo_png_error, mnemo_png_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      std::strcpy(errors_.message, "libpng cannot start");
      return false;
    }
    png_set_read_fn(png_, &input_, mnemo_png_read);
    // These chunks are not needed, and texts and profiles may inflate to megabytes.
    static const png_byte
        kIgnored[] = "bKGD\0cHRM\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnored, sizeof kIgnored / 5);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // ImageLimits are checked instead
    png_read_info(png_, info_);
    return true;
  }

  bool ask_for_rgb() {
    if (setjmp(errors_.back) != 0) return false;
    const png_byte colour = png_get_color_type(png_, info_), depth = png_get_bit_depth(png_, info_);
    if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (colour == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (depth == 16) png_set_strip_16(png_);
    if ((colour & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);  // also the transparency of palettes
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows(Image& image) {
    if (setjmp(errors_.back) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (int64_t y = 0; y < image.height; ++y) png_read_row(png_, image.row(y), nullptr);
    }
    png_read_end(png_, info_);
    return true;
  }

  [[noreturn]] void fail() const {
    base::input_error("{}: {}: {}", name_, kPngFormat, static_cast<const char*>(errors_.message));
  }

  const std::string& name_;
  std::string_view bytes_;
  PngInput input_;
  PngErrors errors_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
};

Image decode_png(std::string_view bytes, const std::string& name, const ImageLimits& limits) {
  PngFile file(bytes, name);
  check_image_size(file.height(), file.width(), name, kPngFormat, limits);
  file.check_plausible(bytes.size());
  Image image = file.decode();
  return oriented(std::move(image), file.orientation());
}

ImageHeader png_header(std::string_view bytes, const std::string& name, const ImageLimits& limits) {
  const PngFile file(bytes, name);
  check_image_size(file.height(), file.width(), name, kPngFormat, limits);
  return oriented_header(kPngFormat, file.height(), file.width(), file.orientation());
}

}  // namespace

const ImageCodec& png_codec() {
  static constexpr ImageCodec kCodec{kPngFormat,
                                     [](std::string_view bytes) { return bytes.starts_with("\x89PNG\r\n\x1a\n"); },
                                     decode_png, png_header};
  return kCodec;
}

}  // namespace mnemo::data
