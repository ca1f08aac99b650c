#include "subnormals.h"

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace agent {
namespace {

// The control register of floating point, and its bits that flush: Intel SDM volume 1, section 10.2.3 (MXCSR: FTZ, DAZ);
// Arm ARM, FPCR and FPSCR (FZ). NEON on 32-bit ARM always flushes; the bit does it for VFP.
#if defined(__x86_64__)
constexpr uintptr_t kFlush = 0x8040;
uintptr_t Control() { return _mm_getcsr(); }
void SetControl(uintptr_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__aarch64__)
constexpr uintptr_t kFlush = uintptr_t{1} << 24;
uintptr_t Control() {
  uintptr_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void SetControl(uintptr_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#elif defined(__arm__)
constexpr uintptr_t kFlush = uintptr_t{1} << 24;
uintptr_t Control() {
  uintptr_t value;
  __asm__ volatile("vmrs %0, fpscr" : "=r"(value));
  return value;
}
void SetControl(uintptr_t value) { __asm__ volatile("vmsr fpscr, %0" : : "r"(value)); }
#else
#error "no way is known to flush subnormal numbers on this architecture"
#endif

}  // namespace

void FlushSubnormals() { SetControl(Control() | kFlush); }
bool SubnormalsAreFlushed() { return (Control() & kFlush) == kFlush; }

}  // namespace agent
