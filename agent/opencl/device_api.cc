// TVM's interface to OpenCL devices: attributes, memory, copies, streams.

#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

#include <array>
#include <string_view>
#include <vector>

#include "opencl/device.h"
#include "opencl/timer.h"
#include "src/runtime/workspace_pool.h"

// Classes of TVM's are derived from, and its headers describe this release only.
static_assert(std::string_view(TVM_VERSION) == "0.27.0", "the OpenCL runtime is written for TVM 0.27.0");

namespace agent::opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::DeviceAttrKind;

cl_mem Memory(const void* data) { return static_cast<cl_mem>(const_cast<void*>(data)); }

// Of a device that is there.
ffi::Any Attribute(const Device& device, DeviceAttrKind kind) {
  switch (kind) {
    case tvm::runtime::kExist:
      return 1;
    case tvm::runtime::kMaxThreadsPerBlock:
      return static_cast<int64_t>(device.Number<size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE));
    case tvm::runtime::kWarpSize:
      // OpenCL 1.2 does not say how many work-items run in step; with 1 TVM relies on none that do.
      return 1;
    case tvm::runtime::kMaxSharedMemoryPerBlock:
      return static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE));
    case tvm::runtime::kComputeVersion:
      return ffi::String(device.Text(CL_DEVICE_VERSION));
    case tvm::runtime::kDeviceName:
      return ffi::String(device.name());
    case tvm::runtime::kMaxClockRate:  // in kHz
      return static_cast<int64_t>(device.Number<cl_uint>(CL_DEVICE_MAX_CLOCK_FREQUENCY)) * 1000;
    case tvm::runtime::kMultiProcessorCount:
      return static_cast<int64_t>(device.Number<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS));
    case tvm::runtime::kMaxThreadDimensions: {
      const auto sizes = device.Number<std::array<size_t, 3>>(CL_DEVICE_MAX_WORK_ITEM_SIZES);
      return ffi::String("[" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " +
                         std::to_string(sizes[2]) + "]");
    }
    case tvm::runtime::kDriverVersion:
      return ffi::String(device.Text(CL_DRIVER_VERSION));
    case tvm::runtime::kL2CacheSizeBytes:
      return static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE));
    case tvm::runtime::kTotalGlobalMemory:
      return static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE));
    case tvm::runtime::kAvailableGlobalMemory:
      return static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE) - device.allocated());
    case tvm::runtime::kMaxRegistersPerBlock:
    case tvm::runtime::kGcnArch:
    case tvm::runtime::kApiVersion:
    case tvm::runtime::kImagePitchAlignment:
      break;  // OpenCL 1.2 has no such things
  }
  return nullptr;
}

class DeviceAPI final : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device device) override { SetCurrentDevice(device.device_id); }

  void GetAttr(tvm::Device device, DeviceAttrKind kind, ffi::Any* result) override {
    try {
      *result = Attribute(DeviceAt(device.device_id), kind);
    } catch (const ffi::Error& error) {
      if (kind != tvm::runtime::kExist || error.kind() != kUnavailable) throw;
      *result = 0;
    }
  }

  // A tensor's `data` is the buffer itself, as DLPack says; offsets are in its `byte_offset`.
  void* AllocDataSpace(tvm::Device device, size_t bytes, size_t, DLDataType) override {
    return DeviceAt(device.device_id).Allocate(bytes);
  }
  using tvm::runtime::DeviceAPI::AllocDataSpace;

  void FreeDataSpace(tvm::Device device, void* data) override { DeviceAt(device.device_id).Free(Memory(data)); }

  void* AllocWorkspace(tvm::Device device, size_t bytes, DLDataType) override {
    return Workspace().AllocWorkspace(device, bytes);
  }
  void FreeWorkspace(tvm::Device device, void* data) override { Workspace().FreeWorkspace(device, data); }

  TVMStreamHandle CreateStream(tvm::Device device) override { return DeviceAt(device.device_id).NewQueue(); }
  void FreeStream(tvm::Device device, TVMStreamHandle stream) override {
    DeviceAt(device.device_id).FreeQueue(static_cast<Queue*>(stream));
  }
  // The default stream waits for all others, as that of CUDA does.
  void StreamSync(tvm::Device device, TVMStreamHandle stream) override {
    if (stream) {
      static_cast<Queue*>(stream)->Finish();
    } else {
      DeviceAt(device.device_id).Finish();
    }
  }
  void SyncStreamFromTo(tvm::Device device, TVMStreamHandle from, TVMStreamHandle to) override {
    Device& owner = DeviceAt(device.device_id);
    const auto queue = [&](TVMStreamHandle stream) -> Queue& {
      return stream ? *static_cast<Queue*>(stream) : owner.default_queue();
    };
    queue(to).WaitFor(queue(from).Mark());
  }

  using tvm::runtime::DeviceAPI::CopyDataFromTo;

 protected:
  // Copies to and from the host are done when this returns: nobody promises that its memory stays.
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset, size_t bytes,
                      tvm::Device from_device, tvm::Device to_device, DLDataType, TVMStreamHandle stream) override {
    if (bytes == 0) return;
    const bool reads = from_device.device_type == kDLOpenCL;
    const bool writes = to_device.device_type == kDLOpenCL;
    if (reads && writes && from_device.device_id != to_device.device_id) {
      // Devices may be of different drivers, which share nothing.
      std::vector<char> between(bytes);
      Read(from_device.device_id, from, from_offset, between.data(), bytes, nullptr);
      Write(between.data(), to_device.device_id, to, to_offset, bytes, stream);
    } else if (reads && writes) {
      Copy(from_device.device_id, from, from_offset, to, to_offset, bytes, stream);
    } else if (reads) {
      Read(from_device.device_id, from, from_offset, static_cast<char*>(to) + to_offset, bytes, stream);
    } else {
      Write(static_cast<const char*>(from) + from_offset, to_device.device_id, to, to_offset, bytes, stream);
    }
  }

 private:
  // Gives a queue of a device a command that copies, by a function of OpenCL and its arguments; returns the queue.
  template <typename Enqueue, typename... Arguments>
  static Queue& Give(int index, TVMStreamHandle stream, const char* what, Enqueue* enqueue, Arguments... arguments) {
    Device& device = DeviceAt(index);
    device.RequireAlive();
    Queue& queue = stream ? *static_cast<Queue*>(stream) : device.current_queue();
    Timed timed(device);
    device.Done(enqueue(queue.get(), arguments..., 0, nullptr, timed.out()), what);
    timed.Record();
    return queue;
  }

  static void Read(int index, const void* from, size_t offset, void* to, size_t bytes, TVMStreamHandle stream) {
    const auto read = Library().clEnqueueReadBuffer;
    Give(index, stream, "copy from the device", read, Memory(from), CL_FALSE, offset, bytes, to).Finish();
  }

  static void Write(const void* from, int index, void* to, size_t offset, size_t bytes, TVMStreamHandle stream) {
    const auto write = Library().clEnqueueWriteBuffer;
    Give(index, stream, "copy to the device", write, Memory(to), CL_FALSE, offset, bytes, from).Finish();
  }

  static void Copy(int index, const void* from, size_t from_offset, void* to, size_t to_offset, size_t bytes,
                   TVMStreamHandle stream) {
    const auto copy = Library().clEnqueueCopyBuffer;
    Give(index, stream, "copy on the device", copy, Memory(from), Memory(to), from_offset, to_offset, bytes);
  }

  // Each thread has its own, as TVM expects.
  static tvm::runtime::WorkspacePool& Workspace();
};

DeviceAPI& Instance() {
  static DeviceAPI* instance = new DeviceAPI();
  return *instance;
}

tvm::runtime::WorkspacePool& DeviceAPI::Workspace() {
  thread_local tvm::runtime::WorkspacePool pool(kDLOpenCL, &Instance());
  return pool;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("device_api.opencl", [] {
    tvm::runtime::DeviceAPI* instance = &Instance();
    return static_cast<void*>(instance);
  });
}

}  // namespace
}  // namespace agent::opencl
