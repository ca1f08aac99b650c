#include "device.h"

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "failure.h"

namespace agent {
namespace {

namespace ffi = tvm::ffi;

// TVM's `DeviceAttrKind`.
constexpr int kExist = 0;
constexpr int kDeviceName = 5;

// Names a device in the place of what packages say.
constexpr const char* kDeviceVariable = "EDGEDEPLOY_OPENCL_DEVICE";

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

ffi::Any Ask(DLDevice device, int kind) {
  const ffi::Function attribute = ffi::Function::GetGlobalRequired("runtime.GetDeviceAttr");
  return attribute(static_cast<int>(device.device_type), device.device_id, kind);
}

}  // namespace

std::string DeviceName(DLDevice device) { return Ask(device, kDeviceName).cast<ffi::String>(); }

DLDevice FindDevice(const std::optional<std::string>& stated) {
  if (!stated) return kCpu;
  const char* chosen = std::getenv(kDeviceVariable);
  const std::string part = chosen ? chosen : *stated;
  if (!ffi::Function::GetGlobal("device_api.opencl")) {
    throw Failure(Code::kDevice, "the network is for an OpenCL device", "this agent was built without OpenCL");
  }
  std::string names;
  try {
    for (DLDevice device{kDLOpenCL, 0}; device.device_id == 0 || Ask(device, kExist).cast<int>(); ++device.device_id) {
      const std::string name = DeviceName(device);  // fails where there is no device at all
      if (Lower(name).find(Lower(part)) != std::string::npos) return device;
      names += (names.empty() ? "" : ", ") + name;
    }
  } catch (const ffi::Error& error) {
    throw Failure(Code::kDevice, std::string(error.kind()) + ": " + std::string(error.message()));
  }
  throw Failure(Code::kDevice, "OpenCLUnavailable: no OpenCL device here has '" + part + "' in its name",
                "there is " + names);
}

}  // namespace agent
