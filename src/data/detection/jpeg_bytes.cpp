#include "data/detection/jpeg_bytes.h"

#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

// After FILE and size_t, which it needs.
#include <jpeglib.h>

#include <memory>

#include "base/error.h"

namespace mnemo::data {
namespace {

struct WriteErrors {
  jpeg_error_mgr manager;  // must be first: libjpeg passes a pointer to it
  std::jmp_buf back;
};

extern "C" void mnemo_jpeg_write_error(j_common_ptr info) {
  std::longjmp(reinterpret_cast<WriteErrors*>(info->err)->back, 1);
}

/// Returns false if libjpeg cannot. Nothing in this frame needs a destructor.
bool write_jpeg(const Image& image, int quality, unsigned char** bytes, unsigned long* size) {  // NOLINT: libjpeg's
  jpeg_compress_struct info{};
  WriteErrors errors{};
  info.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = mnemo_jpeg_write_error;
  if (setjmp(errors.back) != 0) {
    jpeg_destroy_compress(&info);
    return false;
  }
  jpeg_create_compress(&info);
  jpeg_mem_dest(&info, bytes, size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(image.row(info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  return true;
}

}  // namespace

std::string jpeg_bytes(const Image& image, int quality) {
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  const bool written = write_jpeg(image, quality, &bytes, &size);
  const std::unique_ptr<unsigned char, decltype(&std::free)> owner(bytes, &std::free);
  base::require(written, "an image of {} x {} pixels cannot be written as JPEG", image.height, image.width);
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace mnemo::data
