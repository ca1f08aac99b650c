// Arithmetic without subnormal numbers, as `edgedeploy/runtime/subnormals.py` sets it: they slow a core down many
// times.
#pragma once

#include <fenv.h>

namespace agent {

// Operands and results of this thread that are too small for a normal float become zero.
void FlushSubnormals();

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
