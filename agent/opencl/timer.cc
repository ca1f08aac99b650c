#include "opencl/timer.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/timer.h>

namespace agent::opencl {
namespace {

namespace ffi = tvm::ffi;

// The time from the start of the first command that the calling thread gives to the device to the end of the last
// one, by the device's own clock: what a network takes with its inputs in place. Times between commands count.
class TimerNode final : public tvm::runtime::TimerNode {
 public:
  explicit TimerNode(int device) : device_(device) {}
  ~TimerNode() override { Leave(); }

  void Start() override {
    DeviceAt(device_).Finish();
    before_ = running;
    running = this;
  }
  void Stop() override { Leave(); }

  int64_t SyncAndGetElapsedNanos() override {
    DeviceAt(device_).Finish();
    if (!first_) return 0;
    return static_cast<int64_t>(Time(last_ ? last_ : first_, CL_PROFILING_COMMAND_END) -
                                Time(first_, CL_PROFILING_COMMAND_START));
  }

  void Add(Event event) { (first_ ? last_ : first_) = std::move(event); }

  // The timer that runs in this thread; timers may lie in each other, then the inner one counts.
  static thread_local TimerNode* running;

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("edgedeploy.OpenCLTimer", TimerNode, tvm::runtime::TimerNode);

 private:
  void Leave() {
    if (running == this) running = before_;
  }
  cl_ulong Time(const Event& event, cl_uint what) const {
    cl_ulong nanoseconds = 0;
    Check(Library().clGetEventProfilingInfo(event.get(), what, sizeof nanoseconds, &nanoseconds, nullptr),
          "read the time of a command");
    return nanoseconds;
  }

  int device_;
  TimerNode* before_ = nullptr;
  Event first_;
  Event last_;
};

thread_local TimerNode* TimerNode::running = nullptr;

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("runtime.timer.opencl", [](DLDevice device) {
    return tvm::runtime::Timer(ffi::make_object<TimerNode>(device.device_id));
  });
}

}  // namespace

cl_event* Timed::out() { return TimerNode::running ? event_.out() : nullptr; }

Timed::~Timed() {
  if (event_ && TimerNode::running) TimerNode::running->Add(std::move(event_));
}

}  // namespace agent::opencl
