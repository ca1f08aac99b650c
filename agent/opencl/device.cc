#include "opencl/device.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace agent::opencl {
namespace {

using Clock = std::chrono::steady_clock;

// How long a wait may take before the device is given up, unless the environment states it. Queues are kept short
// (kBacklog), so that this is the time of a few hundred kernels at most.
constexpr double kPatienceSeconds = 120;
constexpr const char* kPatienceVariable = "EDGEDEPLOY_OPENCL_TIMEOUT_S";

// After so many kernels a queue is marked, and the mark before is waited for.
constexpr int kBacklog = 64;

double PatienceSeconds() {
  const char* stated = std::getenv(kPatienceVariable);
  const double seconds = stated ? std::strtod(stated, nullptr) : 0;
  return seconds > 0 ? seconds : kPatienceSeconds;
}

std::vector<cl_device_id> DevicesOf(cl_platform_id platform) {
  cl_uint count = 0;
  const cl_int code = Library().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
  if (code == CL_DEVICE_NOT_FOUND || count == 0) return {};
  Check(code, "list the devices of an OpenCL driver");
  std::vector<cl_device_id> ids(count);
  Check(Library().clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr),
        "list the devices of an OpenCL driver");
  return ids;
}

// Graphics processors first, processors that run this program last: drivers are listed in any order, and both may
// have the maker's name in theirs.
int Rank(cl_device_id id) {
  cl_bitfield type = 0;
  Library().clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, nullptr);
  return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_CPU ? 2 : 1;
}

std::vector<Device*> List() {
  cl_uint count = 0;
  const cl_int code = Library().clGetPlatformIDs(0, nullptr, &count);
  if (code == CL_PLATFORM_NOT_FOUND_KHR || (code == CL_SUCCESS && count == 0)) {
    Fail(kUnavailable, "no OpenCL driver is installed here: OpenCL's loader found none");
  }
  Check(code, "list OpenCL's drivers");
  std::vector<cl_platform_id> platforms(count);
  Check(Library().clGetPlatformIDs(count, platforms.data(), nullptr), "list OpenCL's drivers");
  std::vector<std::pair<cl_platform_id, cl_device_id>> found;
  for (const cl_platform_id platform : platforms) {
    for (const cl_device_id id : DevicesOf(platform)) found.emplace_back(platform, id);
  }
  if (found.empty()) {
    Fail(kUnavailable, "OpenCL has no device here: none of its " + std::to_string(count) + " drivers found one");
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return Rank(a.second) < Rank(b.second); });
  std::vector<Device*> devices;
  for (const auto& [platform, id] : found)
    devices.push_back(new Device(static_cast<int>(devices.size()), platform, id));
  return devices;
}

thread_local int current_index = 0;

}  // namespace

Queue::Queue(Device* device) : device_(device) {
  cl_int code = CL_SUCCESS;
  queue_.reset(Library().clCreateCommandQueue(device->context(), device->id(), CL_QUEUE_PROFILING_ENABLE, &code));
  device->Done(code, "make a command queue");
}

Event Queue::Mark() {
  device_->RequireAlive();
  cl_event marked = nullptr;
  device_->Done(Library().clEnqueueMarkerWithWaitList(get(), 0, nullptr, &marked), "mark a command queue");
  Event event(marked);
  device_->Done(Library().clFlush(get()), "flush a command queue");
  return event;
}

void Queue::WaitFor(const Event& event) {
  const cl_event other = event.get();
  device_->Done(Library().clEnqueueBarrierWithWaitList(get(), 1, &other, nullptr), "wait for another command queue");
}

void Queue::Finish() { Wait(Mark()); }

void Queue::Wait(const Event& event) {
  const double patience = PatienceSeconds();
  const auto begin = Clock::now();
  for (;;) {
    cl_int status = CL_COMPLETE;
    device_->Done(
        Library().clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr),
        "ask whether a command is done");
    if (status == CL_COMPLETE) return;
    if (status < 0) device_->Lose("it failed while it was working: " + Named(status));
    const auto waited = Clock::now() - begin;
    if (std::chrono::duration<double>(waited).count() > patience) {
      device_->Lose("it did not answer for " + std::to_string(static_cast<int>(patience)) + " s (" + kPatienceVariable +
                    ")");
    }
    if (waited < std::chrono::microseconds(100)) {
      std::this_thread::yield();
    } else {
      // No longer than a sixteenth of the time that it takes anyway.
      std::this_thread::sleep_for(std::min<Clock::duration>(waited / 16, std::chrono::milliseconds(1)));
      // Drivers without threads of their own, as PoCL's `basic`, work in calls like this one only.
      device_->Done(Library().clFlush(get()), "flush a command queue");
    }
  }
}

void Queue::Launched() {
  Event before;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (++launched_ % kBacklog != 0) return;
    before = std::exchange(marker_, Mark());
  }
  if (before) Wait(before);
}

Device::Device(int index, cl_platform_id platform, cl_device_id id)
    : index_(index), platform_(platform), id_(id), name_(Text(CL_DEVICE_NAME)) {
  most_at_once_ = Number<cl_ulong>(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  memory_ = Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE);
}

std::string Device::Text(cl_uint what) const {
  size_t size = 0;
  Check(Library().clGetDeviceInfo(id_, what, 0, nullptr, &size), "ask a device what it is");
  std::string text(size, '\0');
  Check(Library().clGetDeviceInfo(id_, what, size, text.data(), nullptr), "ask a device what it is");
  const size_t end = text.find_last_not_of(std::string(" \0", 2));
  return text.substr(0, end == std::string::npos ? 0 : end + 1);
}

cl_context Device::context() {
  const std::lock_guard<std::mutex> lock(context_mutex_);
  if (context_ == nullptr) {
    cl_int code = CL_SUCCESS;
    context_ = Library().clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &code);
    Done(code, "open " + name_);
  }
  return context_;
}

cl_mem Device::Allocate(size_t bytes) {
  RequireAlive();
  const std::string size = std::to_string(bytes) + " bytes";
  if (bytes > most_at_once_) {
    Fail(kMemory, size + " are more than " + name_ + " gives in one piece, " + std::to_string(most_at_once_));
  }
  if (allocated_ + bytes > memory_) {
    Fail(kMemory, "the memory of " + name_ + " is exhausted: " + size + " were asked for, " +
                      std::to_string(allocated_) + " of its " + std::to_string(memory_) + " are in use");
  }
  cl_int code = CL_SUCCESS;
  // A buffer of no bytes is an error.
  const cl_mem memory =
      Library().clCreateBuffer(context(), CL_MEM_READ_WRITE, std::max<size_t>(bytes, 1), nullptr, &code);
  Done(code, "allocate " + size + " on " + name_);
  allocated_ += std::max<size_t>(bytes, 1);
  return memory;
}

void Device::Free(cl_mem memory) {
  size_t bytes = 0;
  if (Library().clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr) == CL_SUCCESS) {
    allocated_ -= bytes;
  }
  Library().clReleaseMemObject(memory);
}

Queue& Device::default_queue() {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  if (!default_queue_) default_queue_ = std::make_unique<Queue>(this);
  return *default_queue_;
}

Queue& Device::current_queue() {
  auto* chosen = static_cast<Queue*>(TVMFFIEnvGetStream(kDLOpenCL, index_));
  return chosen ? *chosen : default_queue();
}

Queue* Device::NewQueue() {
  auto queue = std::make_unique<Queue>(this);
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  return *queues_.insert(queue.release()).first;
}

void Device::FreeQueue(Queue* queue) {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  if (queues_.erase(queue) > 0) delete queue;
}

void Device::Finish() {
  default_queue().Finish();
  std::vector<Queue*> queues;
  {
    const std::lock_guard<std::mutex> lock(queues_mutex_);
    queues.assign(queues_.begin(), queues_.end());
  }
  for (Queue* queue : queues) queue->Finish();
}

void Device::Done(cl_int code, const std::string& what) {
  if (code == CL_SUCCESS) return;
  if (KindOf(code) == kLost) Lose("it cannot " + what + ": " + Named(code));
  Check(code, what);
}

void Device::RequireAlive() const {
  if (lost_) Fail(kLost, "the device " + name_ + " was lost before; a new process may find it again");
}

void Device::Lose(const std::string& why) {
  lost_ = true;
  Fail(kLost, "the device " + name_ + " is lost: " + why);
}

const std::vector<Device*>& Devices() {
  static const std::vector<Device*>& devices = *new std::vector<Device*>(List());
  return devices;
}

Device& DeviceAt(int index) {
  const std::vector<Device*>& devices = Devices();
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
    Fail(kUnavailable,
         "there is no OpenCL device " + std::to_string(index) + " here: there are " + std::to_string(devices.size()));
  }
  return *devices[static_cast<size_t>(index)];
}

Device& CurrentDevice() { return DeviceAt(current_index); }

void SetCurrentDevice(int index) { current_index = DeviceAt(index).index(); }

}  // namespace agent::opencl
