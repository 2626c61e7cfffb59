#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/grid.h"

namespace mnemo::core {

/// The real cells of a batch of images on one grid. Images of unequal sizes are padded on the right and at the bottom,
/// so the real cells of image b are its first height x width; a cell with a real pixel is real.
struct RealCells {
  Grid grid = {};
  std::vector<Grid> images = {};  ///< of each image; empty: all cells are real

  /// The cells of images of `sizes` pixels in a batch of height x width pixels; no sizes: all are real. Throws
  /// InputError naming `who` for a size outside the batch and for a grid whose cells are not equally large.
  static RealCells of(const char* who, std::span<const Grid> sizes, int64_t height, int64_t width, Grid grid);
  /// From a mask [B,N] bool of that form; undefined: all are real.
  static RealCells from_mask(const at::Tensor& mask, Grid grid);

  bool all() const { return images.empty(); }
  /// The cells of image b.
  Grid of_image(int64_t b) const { return all() ? grid : images[static_cast<size_t>(b)]; }
  /// After a reduction by `ratio` in both directions, on a grid of that size.
  RealCells reduced(int64_t ratio, Grid to) const;
  /// [B,front+N] bool with `front` real rows before the grid; undefined if all are real.
  at::Tensor mask(at::Device device, int64_t front = 0) const;
  /// rows [B,front+N,D] with zeros in padding cells.
  at::Tensor keep(const at::Tensor& rows) const;
  /// A map [B,D,h,w] with zeros in padding cells.
  at::Tensor keep_map(const at::Tensor& map) const;
};

}  // namespace mnemo::core
