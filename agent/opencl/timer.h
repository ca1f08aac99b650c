// Times that the device itself takes.
#pragma once

#include "opencl/device.h"

namespace agent::opencl {

// Is given the events of the commands that its thread gives to devices. They may lie in each other, then the inner one
// gets them.
class Recorder {
 public:
  virtual ~Recorder() { Leave(); }
  virtual void Add(const Device& device, bool is_kernel, Event event) = 0;
  void Enter() {
    before_ = running;
    running = this;
  }
  void Leave() {
    if (running == this) running = before_;
  }

  // The one that records what this thread does.
  static thread_local Recorder* running;

 private:
  Recorder* before_ = nullptr;
};

// The event of one command, for the recorder of this thread. Where none runs, OpenCL is asked for no event.
class Timed {
 public:
  explicit Timed(const Device& device, bool is_kernel = false) : device_(device), is_kernel_(is_kernel) {}
  // What a call that enqueues a command takes as its last argument.
  cl_event* out() { return Recorder::running ? &event_ : nullptr; }
  // Gives the event to the recorder, which may wait for the device, and fail.
  void Record() {
    if (event_) Recorder::running->Add(device_, is_kernel_, Event(event_));
  }

 private:
  const Device& device_;
  bool is_kernel_;
  cl_event event_ = nullptr;
};

}  // namespace agent::opencl
