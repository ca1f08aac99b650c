// TVM's interface to OpenCL devices: attributes, memory, copies, streams.

#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/runtime/device_api.h>

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
void GetAttribute(const Device& device, DeviceAttrKind kind, ffi::Any* result) {
  switch (kind) {
    case tvm::runtime::kExist:
      *result = 1;
      return;
    case tvm::runtime::kMaxThreadsPerBlock:
      *result = static_cast<int64_t>(device.Number<size_t>(CL_DEVICE_MAX_WORK_GROUP_SIZE));
      return;
    case tvm::runtime::kWarpSize:
      // OpenCL 1.2 does not say how many work-items run in step; with 1 TVM relies on none that do.
      *result = 1;
      return;
    case tvm::runtime::kMaxSharedMemoryPerBlock:
      *result = static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE));
      return;
    case tvm::runtime::kComputeVersion:
      *result = ffi::String(device.Text(CL_DEVICE_VERSION));
      return;
    case tvm::runtime::kDeviceName:
      *result = ffi::String(device.name());
      return;
    case tvm::runtime::kMaxClockRate:  // in kHz
      *result = static_cast<int64_t>(device.Number<cl_uint>(CL_DEVICE_MAX_CLOCK_FREQUENCY)) * 1000;
      return;
    case tvm::runtime::kMultiProcessorCount:
      *result = static_cast<int64_t>(device.Number<cl_uint>(CL_DEVICE_MAX_COMPUTE_UNITS));
      return;
    case tvm::runtime::kMaxThreadDimensions: {
      struct Sizes {
        size_t each[3];
      };
      const Sizes sizes = device.Number<Sizes>(CL_DEVICE_MAX_WORK_ITEM_SIZES);
      *result = ffi::String("[" + std::to_string(sizes.each[0]) + ", " + std::to_string(sizes.each[1]) + ", " +
                            std::to_string(sizes.each[2]) + "]");
      return;
    }
    case tvm::runtime::kDriverVersion:
      *result = ffi::String(device.Text(CL_DRIVER_VERSION));
      return;
    case tvm::runtime::kL2CacheSizeBytes:
      *result = static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_CACHE_SIZE));
      return;
    case tvm::runtime::kTotalGlobalMemory:
      *result = static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE));
      return;
    case tvm::runtime::kAvailableGlobalMemory:
      *result = static_cast<int64_t>(device.Number<cl_ulong>(CL_DEVICE_GLOBAL_MEM_SIZE) - device.allocated());
      return;
    case tvm::runtime::kMaxRegistersPerBlock:
    case tvm::runtime::kGcnArch:
    case tvm::runtime::kApiVersion:
    case tvm::runtime::kImagePitchAlignment:
      return;  // OpenCL 1.2 has no such things
  }
}

class DeviceAPI final : public tvm::runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device device) override { SetCurrentDevice(device.device_id); }

  void GetAttr(tvm::Device device, DeviceAttrKind kind, ffi::Any* result) override {
    if (kind != tvm::runtime::kExist) return GetAttribute(DeviceAt(device.device_id), kind, result);
    try {
      GetAttribute(DeviceAt(device.device_id), kind, result);
    } catch (const ffi::Error& error) {
      if (error.kind() != kUnavailable) throw;
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
  static Queue& Chosen(Device& device, TVMStreamHandle stream) {
    device.RequireAlive();
    return stream ? *static_cast<Queue*>(stream) : device.current_queue();
  }

  static void Read(int index, const void* from, size_t offset, void* to, size_t bytes, TVMStreamHandle stream) {
    Device& device = DeviceAt(index);
    Queue& queue = Chosen(device, stream);
    Timed timed(device);
    device.Done(
        Library().clEnqueueReadBuffer(queue.get(), Memory(from), CL_FALSE, offset, bytes, to, 0, nullptr, timed.out()),
        "copy from the device");
    timed.Record();
    queue.Finish();
  }

  static void Write(const void* from, int index, void* to, size_t offset, size_t bytes, TVMStreamHandle stream) {
    Device& device = DeviceAt(index);
    Queue& queue = Chosen(device, stream);
    Timed timed(device);
    device.Done(
        Library().clEnqueueWriteBuffer(queue.get(), Memory(to), CL_FALSE, offset, bytes, from, 0, nullptr, timed.out()),
        "copy to the device");
    timed.Record();
    queue.Finish();
  }

  static void Copy(int index, const void* from, size_t from_offset, void* to, size_t to_offset, size_t bytes,
                   TVMStreamHandle stream) {
    Device& device = DeviceAt(index);
    Queue& queue = Chosen(device, stream);
    Timed timed(device);
    device.Done(Library().clEnqueueCopyBuffer(queue.get(), Memory(from), Memory(to), from_offset, to_offset, bytes, 0,
                                              nullptr, timed.out()),
                "copy on the device");
    timed.Record();
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
