#pragma once

#if defined(__x86_64__) && defined(__linux__)
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/support/emulated_tiles.h"

namespace mnemo::test {

/// During its lifetime a processor without tiles runs programs that use them: each instruction is refused, decoded from
/// its bytes and emulated. With tiles it does nothing. One at a time, for products of one thread.
class TrappedTiles {
 public:
  TrappedTiles() {
    state = TileState();
    count = 0;
    struct sigaction action {};
    action.sa_sigaction = &TrappedTiles::trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
  }
  ~TrappedTiles() { sigaction(SIGILL, &before_, nullptr); }
  TrappedTiles(const TrappedTiles&) = delete;
  TrappedTiles& operator=(const TrappedTiles&) = delete;

  /// Instructions that were emulated, and whether the tiles have shapes now.
  static int64_t emulated() { return count; }
  static bool configured() { return state.configured(); }

 private:
  /// A VEX prefix of three bytes, an opcode and its operands (Intel's manual, volume 2, chapter 2).
  struct Instruction {
    const uint8_t* at;
    const greg_t* registers;
    int64_t length = 5;

    bool is_of_tiles() const { return at[0] == 0xC4 && (at[1] & 0x1F) == 2 && (at[2] & 0x84) == 0; }
    int prefix() const { return at[2] & 3; }  // none, 66, F3, F2
    bool has_memory() const { return at[4] >> 6 != 3; }
    size_t reg() const { return static_cast<size_t>(at[4] >> 3 & 7); }
    size_t rm() const { return static_cast<size_t>(at[4] & 7); }
    size_t third() const { return static_cast<size_t>(~at[2] >> 3 & 15); }

    int64_t number(size_t index) const {
      constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
      return registers[kPlaces[index]];
    }
    /// The operand in memory, and the register that counts its rows' distance; adds its bytes to the length.
    void* memory(int64_t& stride) {
      const size_t mode = at[4] >> 6, more_base = at[1] & 0x20 ? 0 : 8, more_index = at[1] & 0x40 ? 0 : 8;
      size_t base = rm();
      const bool indexed = base == 4;
      int64_t address = 0;
      stride = 0;
      if (indexed) {
        const uint8_t sib = at[length++];
        base = sib & 7;
        const size_t index = (sib >> 3 & 7) + more_index;
        if (index != 4) stride = number(index) << (sib >> 6);
      }
      const bool no_base = mode == 0 && base == 5;
      if (!no_base) address = number(base + more_base);
      if (mode == 1) address += static_cast<int8_t>(at[length++]);
      if (mode == 2 || no_base) {
        int32_t offset = 0;
        std::memcpy(&offset, at + length, 4);
        length += 4;
        address += offset;
        if (no_base && !indexed) address += reinterpret_cast<int64_t>(at + length);
      }
      return reinterpret_cast<void*>(address);
    }
  };

  static bool emulate(Instruction& now) {
    int64_t stride = 0;
    if (!now.is_of_tiles()) return false;
    const int key = now.at[3] << 4 | now.prefix();
    if (key == 0x490 && now.has_memory()) {
      const void* shapes = now.memory(stride);
      state.configure(static_cast<const uint8_t*>(shapes) + stride);
    } else if (key == 0x490 && now.at[4] == 0xC0) {
      state.release();
    } else if (key == 0x493 && !now.has_memory() && now.rm() == 0) {
      state.clear(now.reg());
    } else if (key == 0x4B3 && now.has_memory()) {
      const void* from = now.memory(stride);
      state.read(now.reg(), from, stride);
    } else if (key == 0x4B2 && now.has_memory()) {
      void* to = now.memory(stride);
      state.write(now.reg(), to, stride);
    } else if (key == 0x5E3 && !now.has_memory()) {
      state.add_signed_products(now.reg(), now.rm(), now.third());
    } else {
      return false;
    }
    return true;
  }

  static void trap(int, siginfo_t*, void* context) {
    greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    Instruction now{reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers};
    if (!emulate(now)) std::abort();
    ++count;
    registers[REG_RIP] += now.length;
  }

  static inline TileState state;
  static inline int64_t count = 0;
  struct sigaction before_ {};
};

}  // namespace mnemo::test
#endif
