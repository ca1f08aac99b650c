// Times that the device itself takes.
#pragma once

#include "opencl/device.h"

namespace agent::opencl {

// The event of one command, for the timer that runs in this thread. Where none runs, OpenCL is asked for no event.
class Timed {
 public:
  // What a call that enqueues a command takes as its last argument.
  cl_event* out();
  // Gives the event to the timer.
  ~Timed();

 private:
  Event event_;
};

}  // namespace agent::opencl
