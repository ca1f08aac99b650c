// The OpenCL devices of this machine, and the queues that work is given to them through.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "opencl/api.h"

namespace agent::opencl {

// Objects of OpenCL, released with their owner.
template <auto kRelease>
struct Releaser {
  template <typename Object>
  void operator()(Object* object) const {
    (Library().*kRelease)(object);
  }
};
using Event = std::unique_ptr<Event_, Releaser<&Api::clReleaseEvent>>;
using Program = std::unique_ptr<Program_, Releaser<&Api::clReleaseProgram>>;
using CommandQueue = std::unique_ptr<CommandQueue_, Releaser<&Api::clReleaseCommandQueue>>;

class Device;

// A queue that runs its commands in their order.
class Queue {
 public:
  explicit Queue(Device* device);

  cl_command_queue get() const { return queue_.get(); }
  // An event that is complete when all commands so far are.
  Event Mark();
  // Commands in this queue from now on wait for an event of another one.
  void WaitFor(const Event& event);
  // Waits until all commands so far are done.
  void Finish();
  // Waits for an event of this queue, for a limited time.
  void Wait(const Event& event);
  // Is told of each kernel that was put in. Keeps the number of those that wait bounded, so that the time that one
  // wait may take says something about the device.
  void Launched();

 private:
  Device* device_;
  CommandQueue queue_;
  std::mutex mutex_;
  int launched_ = 0;
  Event marker_;
};

// A device is never freed: others' destructors may still give memory back to it when the process ends.
class Device {
 public:
  Device(int index, cl_platform_id platform, cl_device_id id);

  int index() const { return index_; }
  cl_device_id id() const { return id_; }
  cl_platform_id platform() const { return platform_; }
  const std::string& name() const { return name_; }
  cl_context context();

  std::string Text(cl_uint what) const;
  template <typename Value>
  Value Number(cl_uint what) const {
    Value value{};
    Check(Library().clGetDeviceInfo(id_, what, sizeof value, &value, nullptr), "ask " + name_ + " what it is");
    return value;
  }

  cl_mem Allocate(size_t bytes);
  // Never fails: it is called by destructors.
  void Free(cl_mem memory);
  // How many bytes are in use, of those that were given out here.
  uint64_t allocated() const { return allocated_; }

  Queue& default_queue();
  // The queue that the calling thread has chosen for this device, or the default one.
  Queue& current_queue();
  Queue* NewQueue();
  void FreeQueue(Queue* queue);
  // Waits for all queues.
  void Finish();

  // Fails if a call of OpenCL did; remembers if that was because the device is lost.
  void Done(cl_int code, const std::string& what);
  // Fails if the device was lost before: nothing that is asked of it now would ever be answered.
  void RequireAlive() const;
  // Remembers that the device is lost, and fails.
  [[noreturn]] void Lose(const std::string& why);

 private:
  int index_;
  cl_platform_id platform_;
  cl_device_id id_;
  std::string name_;
  uint64_t most_at_once_ = 0;
  uint64_t memory_ = 0;
  std::mutex context_mutex_;
  cl_context context_ = nullptr;
  std::mutex queues_mutex_;
  std::unique_ptr<Queue> default_queue_;
  std::set<Queue*> queues_;
  std::atomic<uint64_t> allocated_{0};
  std::atomic<bool> lost_{false};
};

// The devices of all drivers, graphics processors first. Fails with kUnavailable where there is none.
const std::vector<Device*>& Devices();
// The device of an index. Fails with kUnavailable where there are not as many.
Device& DeviceAt(int index);
// The device that the calling thread has chosen, at first that of index 0.
Device& CurrentDevice();
void SetCurrentDevice(int index);

}  // namespace agent::opencl
