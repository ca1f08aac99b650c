#include "opencl/timer.h"

#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/timer.h>

#include <vector>

namespace agent::opencl {
namespace {

namespace ffi = tvm::ffi;

int64_t Time(const Event& event, cl_uint what) {
  cl_ulong nanoseconds = 0;
  Check(Library().clGetEventProfilingInfo(event.get(), what, sizeof nanoseconds, &nanoseconds, nullptr),
        "read the time of a command");
  return static_cast<int64_t>(nanoseconds);
}

// The time from the start of the first command to the end of the last one, by the device's own clock: what a network
// takes with its inputs in place. Times between commands count.
class Span final : public Recorder {
 public:
  void Add(const Device&, bool, Event event) override { (first_ ? last_ : first_) = std::move(event); }
  // Of commands that are done.
  int64_t Nanoseconds() const {
    return first_ ? Time(last_ ? last_ : first_, CL_PROFILING_COMMAND_END) - Time(first_, CL_PROFILING_COMMAND_START)
                  : 0;
  }

 private:
  Event first_;
  Event last_;
};

// The times of a device's kernels, summed: what it works, without the times between kernels and those of copies.
class KernelSum final : public Recorder {
 public:
  explicit KernelSum(Device* device) : device_(device) {}
  void Add(const Device& device, bool is_kernel, Event event) override {
    if (!is_kernel || &device != device_) return;
    events_.push_back(std::move(event));
    if (events_.size() == kMostEvents) Settle();
  }
  // Waits until the kernels are done.
  int64_t Nanoseconds() {
    Settle();
    return sum_;
  }

 private:
  // More are not kept: drivers have limits, and a network's inference has a few hundred.
  static constexpr size_t kMostEvents = 4096;

  void Settle() {
    device_->Finish();
    for (const Event& event : events_) {
      sum_ += Time(event, CL_PROFILING_COMMAND_END) - Time(event, CL_PROFILING_COMMAND_START);
    }
    events_.clear();
  }

  Device* device_;
  std::vector<Event> events_;
  int64_t sum_ = 0;
};

class TimerNode final : public tvm::runtime::TimerNode {
 public:
  explicit TimerNode(int device) : device_(device) {}

  void Start() override {
    DeviceAt(device_).Finish();
    span_.Enter();
  }
  void Stop() override { span_.Leave(); }

  int64_t SyncAndGetElapsedNanos() override {
    DeviceAt(device_).Finish();
    return span_.Nanoseconds();
  }

  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("edgedeploy.OpenCLTimer", TimerNode, tvm::runtime::TimerNode);

 private:
  int device_;
  Span span_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("runtime.timer.opencl",
           [](DLDevice device) { return tvm::runtime::Timer(ffi::make_object<TimerNode>(device.device_id)); })
      // Does some work, and returns the sum of the times of the kernels that it gave to a device.
      .def("edgedeploy.opencl.kernel_nanoseconds", [](DLDevice device, const ffi::Function& work) {
        KernelSum sum(&DeviceAt(device.device_id));
        sum.Enter();
        work();
        sum.Leave();
        return sum.Nanoseconds();
      });
}

}  // namespace

thread_local Recorder* Recorder::running = nullptr;

}  // namespace agent::opencl
