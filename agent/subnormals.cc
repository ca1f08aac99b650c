#include "subnormals.h"

#include <fenv.h>

#include <cstdint>
#include <cstring>

namespace agent {

// Where glibc stores the control register of floating point, and its bits that flush, are the build's to say
// (triples/). Without bits, the architecture has no such mode.
void FlushSubnormals() {
  uint32_t words[sizeof(fenv_t) / sizeof(uint32_t)];
  fenv_t environment;
  if (AGENT_FLUSH_BITS == 0 || fegetenv(&environment) != 0) return;
  std::memcpy(words, &environment, sizeof words);
  words[AGENT_FLUSH_WORD] |= AGENT_FLUSH_BITS;
  std::memcpy(&environment, words, sizeof words);
  fesetenv(&environment);
}

}  // namespace agent
