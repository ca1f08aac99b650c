// Kernels of a compiled network: the module that TVM's compiler writes for OpenCL, and calls of its functions.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "opencl/device.h"
#include "opencl/program.h"
#include "opencl/timer.h"
#include "src/runtime/metadata.h"
#include "src/runtime/thread_storage_scope.h"
#include "src/support/bytes_io.h"

namespace agent::opencl {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::FunctionInfo;

// A kernel of one device. Arguments are state of it, so one thread at a time sets them and launches it.
struct Kernel {
  std::unique_ptr<Kernel_, Releaser<&Api::clReleaseKernel>> kernel;
  size_t most_work_items = 0;
  std::mutex mutex;
};

// The programs and kernels of a module, made on each device when they are first called there.
class Kernels {
 public:
  explicit Kernels(std::string source) : source_(std::move(source)) {}
  const std::string& source() const { return source_; }

  Kernel& Of(Device& device, const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto key = std::make_pair(device.index(), name);
    const auto known = kernels_.find(key);
    if (known != kernels_.end()) return known->second;
    Program& program = programs_[device.index()];
    if (!program) program = BuildProgram(device, source_);
    cl_int code = CL_SUCCESS;
    const cl_kernel made = Library().clCreateKernel(program.get(), name.c_str(), &code);
    device.Done(code, "make the kernel " + name);
    Kernel& kernel = kernels_[key];
    kernel.kernel.reset(made);
    kernel.most_work_items = Ask<size_t>(device, kernel, CL_KERNEL_WORK_GROUP_SIZE);
    RequireLocalMemory(device, kernel, name);
    return kernel;
  }

 private:
  template <typename Value>
  static Value Ask(Device& device, const Kernel& kernel, cl_uint what) {
    Value value{};
    device.Done(
        Library().clGetKernelWorkGroupInfo(kernel.kernel.get(), device.id(), what, sizeof value, &value, nullptr),
        "ask what a kernel needs");
    return value;
  }

  static void RequireLocalMemory(Device& device, const Kernel& kernel, const std::string& name) {
    const auto needed = Ask<cl_ulong>(device, kernel, CL_KERNEL_LOCAL_MEM_SIZE);
    const auto present = device.Number<cl_ulong>(CL_DEVICE_LOCAL_MEM_SIZE);
    if (needed <= present) return;
    Fail(kLaunch, "the kernel " + name + " needs " + std::to_string(needed) + " bytes of local memory, " +
                      device.name() + " has " + std::to_string(present));
  }

  std::string source_;
  std::mutex mutex_;
  std::map<int, Program> programs_;
  std::map<std::pair<int, std::string>, Kernel> kernels_;
};

// Sets an argument of a kernel as it takes it, and returns OpenCL's code.
cl_int SetArgument(cl_kernel kernel, size_t index, const TVMFFIAny& value, DLDataType type) {
  const auto set = [&](const auto& content, size_t size) {
    return Library().clSetKernelArg(kernel, static_cast<cl_uint>(index), size, &content);
  };
  if (type.code == kDLOpaqueHandle) return set(value.v_ptr, sizeof(cl_mem));
  if (type.code == kDLFloat && type.bits == 32) return set(static_cast<float>(value.v_float64), sizeof(float));
  // All targets are little-endian: a short integer is the beginning of a long one.
  return set(value.v_int64, type.bits / 8);
}

bool IsSupported(DLDataType type) {
  const bool whole = type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64;
  return type.lanes == 1 &&
         (type.code == kDLOpaqueHandle || (type.code == kDLFloat && (type.bits == 32 || type.bits == 64)) ||
          ((type.code == kDLInt || type.code == kDLUInt) && whole));
}

// A function of a module, as TVM's code calls it: the kernel's arguments, then the sizes of grid and work-group.
class Launcher {
 public:
  Launcher(std::shared_ptr<Kernels> kernels, const FunctionInfo& info)
      : kernels_(std::move(kernels)), name_(info->name), types_(info->arg_types.begin(), info->arg_types.end()) {
    for (const DLDataType& type : types_) {
      if (!IsSupported(type)) {
        Fail(kOther, "the kernel " + name_ + " has an argument of a type that is not supported here: " +
                         std::string(ffi::DLDataTypeToString(type)));
      }
    }
    launch_.Init(types_.size(), info->launch_param_tags);
  }

  void operator()(ffi::PackedArgs arguments, ffi::Any*) const {
    Device& device = CurrentDevice();
    device.RequireAlive();
    const tvm::runtime::ThreadWorkLoad work = launch_.Extract(arguments);
    if (work.dyn_shmem_size > 0) Fail(kLaunch, "the kernel " + name_ + " asks for local memory of an open size");
    std::array<size_t, 3> global{};
    std::array<size_t, 3> local{};
    for (size_t i = 0; i < 3; ++i) {
      local[i] = work.block_dim(i);
      global[i] = work.grid_dim(i) * local[i];
    }
    Kernel& kernel = kernels_->Of(device, name_);
    RequireFits(device, kernel, local);
    const auto* values = reinterpret_cast<const TVMFFIAny*>(arguments.data());
    Queue& queue = device.current_queue();
    Timed timed(device, true);
    {
      const std::lock_guard<std::mutex> lock(kernel.mutex);
      for (size_t i = 0; i < types_.size(); ++i) {
        device.Done(SetArgument(kernel.kernel.get(), i, values[i], types_[i]),
                    "set an argument of the kernel " + name_);
      }
      device.Done(
          Library().clEnqueueNDRangeKernel(queue.get(), kernel.kernel.get(), static_cast<cl_uint>(launch_.work_dim()),
                                           nullptr, global.data(), local.data(), 0, nullptr, timed.out()),
          "launch the kernel " + name_);
    }
    timed.Record();
    queue.Launched();
  }

 private:
  // OpenCL would only say that it does not.
  void RequireFits(const Device& device, const Kernel& kernel, const std::array<size_t, 3>& local) const {
    const size_t asked = local[0] * local[1] * local[2];
    if (asked <= kernel.most_work_items) return;
    Fail(kLaunch, "the kernel " + name_ + " asks for work-groups of " + std::to_string(asked) + " work-items, " +
                      device.name() + " gives it " + std::to_string(kernel.most_work_items));
  }

  std::shared_ptr<Kernels> kernels_;
  std::string name_;
  std::vector<DLDataType> types_;
  tvm::runtime::LaunchParamConfig launch_;
};

class Module final : public ffi::ModuleObj {
 public:
  // What TVM's compiler stores: the form of the code, each function by name, and the code.
  explicit Module(const ffi::Bytes& stored) : stored_(stored) {
    tvm::support::BytesInStream stream(stored);
    std::string form;
    std::string source;
    uint64_t count = 0;
    bool whole = stream.Read(&form) && stream.Read(&count);
    for (uint64_t i = 0; whole && i < count; ++i) {
      std::string name;
      FunctionInfo info{ffi::UnsafeInit()};
      whole = stream.Read(&name) && stream.Read(&info);
      if (whole) functions_.emplace(name, info);
    }
    if (!whole || !stream.Read(&source)) Fail(kOther, "the module for OpenCL is damaged: it ends too early");
    if (form != "cl") Fail(kOther, "the module for OpenCL holds code of the form '" + form + "', not source");
    kernels_ = std::make_shared<Kernels>(std::move(source));
  }

  const char* kind() const override { return "opencl"; }
  int GetPropertyMask() const override { return ffi::Module::kBinarySerializable | ffi::Module::kRunnable; }
  ffi::Bytes SaveToBytes() const override { return stored_; }
  ffi::String InspectSource(const ffi::String&) const override { return kernels_->source(); }
  bool ImplementsFunction(const ffi::String& name) override { return functions_.count(name) > 0; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) override {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return std::nullopt;
    return ffi::Function::FromPacked(Launcher(kernels_, found->second));
  }

 private:
  ffi::Bytes stored_;
  std::map<std::string, FunctionInfo> functions_;
  std::shared_ptr<Kernels> kernels_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("ffi.Module.load_from_bytes.opencl", [](const ffi::Bytes& stored) {
    return ffi::Module(ffi::make_object<Module>(stored));
  });
}

}  // namespace
}  // namespace agent::opencl
