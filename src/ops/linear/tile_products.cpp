#include "ops/linear/tile_products.h"

#include "ops/linear/tile_products-inl.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mnemo::ops {

#if defined(__x86_64__) && defined(__linux__)
namespace {

/// Tiles of the processor. Not by intrinsics: those of GCC 12 do not tell the compiler what memory they read.
class ProcessorTiles {
 public:
  explicit ProcessorTiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" : : "m"(shapes)); }
  ~ProcessorTiles() { asm volatile("tilerelease"); }
  ProcessorTiles(const ProcessorTiles&) = delete;
  ProcessorTiles& operator=(const ProcessorTiles&) = delete;

  template <int Tile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
  }
  template <int Tile>
  void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
  }
  /// Products of signed bytes.
  template <int Sums, int Inputs, int Weights>
  void add_products() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Inputs), "i"(Weights));
  }
};

/// Eight tiles of 16 rows of 64 bytes, products of bytes in them, and a system that keeps their registers.
bool processor_has_tiles() {
  constexpr uint32_t kSavesRegisters = 1u << 27, kTiles = 1u << 24 | 1u << 25;  // OSXSAVE; amx-tile and amx-int8
  constexpr uint32_t kTileState = 3u << 17;                                     // shapes and content
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kSavesRegisters) == 0) return false;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) != kTiles) return false;
  if (!__get_cpuid_count(0x1D, 1, &a, &b, &c, &d)) return false;
  if (a >> 16 != kTileBytes || b != (8u << 16 | kTileWidth) || (c & 0xFFFF) != kTileRows) return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a & kTileState) == kTileState;
}

/// Linux saves the content of tiles only for processes that asked.
bool system_permits_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileContent = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  return syscall(SYS_arch_prctl, kRequestPermission, kTileContent) == 0;
}

}  // namespace

bool has_tiles() {
  static const bool has = processor_has_tiles() && system_permits_tiles() && tiles_agree<ProcessorTiles>();
  return has;
}
void run_tiles_int8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last) {
  run_tiles<TiledInt8, ProcessorTiles>(panels, inputs, y, y_stride, first, last);
}
void run_tiles_w8a8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last) {
  run_tiles<TiledW8A8, ProcessorTiles>(panels, inputs, y, y_stride, first, last);
}
#else
bool has_tiles() { return false; }
void run_tiles_int8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last) {
  run_panels_int8(panels, inputs, y, y_stride, first, last);
}
void run_tiles_w8a8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last) {
  run_panels_w8a8(panels, inputs, y, y_stride, first, last);
}
#endif

}  // namespace mnemo::ops
