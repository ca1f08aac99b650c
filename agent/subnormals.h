// Arithmetic without subnormal numbers, as `edgedeploy/runtime/subnormals.py` sets it: they slow a core down many
// times.
#pragma once

#include <fenv.h>

#include <cstdint>
#include <cstring>

namespace agent {

// Operands and results of this thread that are too small for a normal float become zero. Where glibc stores the control
// register of floating point, and its bits that flush, are the build's to say (triples/). Without bits, the
// architecture has no such mode.
inline void FlushSubnormals() {
  uint32_t words[sizeof(fenv_t) / sizeof(uint32_t)];
  fenv_t environment;
  if (AGENT_FLUSH_BITS == 0 || fegetenv(&environment) != 0) return;
  std::memcpy(words, &environment, sizeof words);
  words[AGENT_FLUSH_WORD] |= AGENT_FLUSH_BITS;
  std::memcpy(&environment, words, sizeof words);
  fesetenv(&environment);
}

// The same for as long as the object is there: the thread is somebody else's, and calculates as before then.
class SubnormalsFlushed {
 public:
  SubnormalsFlushed() {
    known_ = fegetenv(&before_) == 0;
    FlushSubnormals();
  }
  ~SubnormalsFlushed() {
    if (known_) fesetenv(&before_);
  }
  SubnormalsFlushed(const SubnormalsFlushed&) = delete;
  SubnormalsFlushed& operator=(const SubnormalsFlushed&) = delete;

 private:
  fenv_t before_;
  bool known_;
};

}  // namespace agent
