#include "inspect/draw/rasterise.h"

#include "base/error.h"

#ifdef MNEMO_LIBRSVG
#include <librsvg/rsvg.h>

#include <algorithm>
#include <memory>
#endif

namespace mnemo::inspect {

#ifdef MNEMO_LIBRSVG

namespace {

constexpr double kDotsAPixel = 2, kMaxSide = 30'000;  // cairo limits a side to 32,767

template <auto release>
struct Release {
  template <class T>
  void operator()(T* held) const {
    release(held);
  }
};
template <class T, auto release>
using Held = std::unique_ptr<T, Release<release>>;

/// Holds an error's text and frees it.
class Error {
 public:
  ~Error() {
    if (error_ != nullptr) g_error_free(error_);
  }
  GError** out() { return &error_; }
  const char* text() const { return error_ == nullptr ? "unknown error" : error_->message; }

 private:
  GError* error_ = nullptr;
};

cairo_status_t append(void* bytes, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

}  // namespace

std::string png_of(std::string_view svg) {
  Error error;
  // Without this flag librsvg refuses text above 10 MB, which the image of a large map may reach.
  const Held<GInputStream, g_object_unref> stream(
      g_memory_input_stream_new_from_data(svg.data(), static_cast<gssize>(svg.size()), nullptr));
  const Held<RsvgHandle, g_object_unref> picture(
      rsvg_handle_new_from_stream_sync(stream.get(), nullptr, RSVG_HANDLE_FLAG_UNLIMITED, nullptr, error.out()));
  base::ensure(picture != nullptr, "librsvg cannot read a picture: {}", error.text());
  double width = 0, height = 0;
  base::ensure(rsvg_handle_get_intrinsic_size_in_pixels(picture.get(), &width, &height) && width > 0 && height > 0,
               "a picture of no size");
  const double scale = std::min(kDotsAPixel, kMaxSide / std::max(width, height));
  const RsvgRectangle all{0, 0, width * scale, height * scale};
  const Held<cairo_surface_t, cairo_surface_destroy> surface(cairo_image_surface_create(
      CAIRO_FORMAT_RGB24, std::max(1, static_cast<int>(all.width)), std::max(1, static_cast<int>(all.height))));
  const Held<cairo_t, cairo_destroy> cairo(cairo_create(surface.get()));
  cairo_set_source_rgb(cairo.get(), 1, 1, 1);
  cairo_paint(cairo.get());
  base::ensure(rsvg_handle_render_document(picture.get(), cairo.get(), &all, error.out()),
               "librsvg cannot draw a picture: {}", error.text());
  std::string bytes;
  const cairo_status_t status = cairo_surface_write_to_png_stream(surface.get(), append, &bytes);
  base::ensure(status == CAIRO_STATUS_SUCCESS, "cairo cannot write a PNG: {}", cairo_status_to_string(status));
  return bytes;
}

#else

std::string png_of(std::string_view) {
  throw base::InputError(
      "this build cannot draw PNG files, because it lacks librsvg: write an SVG, or install librsvg2-dev and rebuild");
}

#endif

}  // namespace mnemo::inspect
