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

}  // namespace

DLDevice FindDevice(const std::optional<std::string>& stated) {
  if (!stated) return kCpu;
  const char* chosen = std::getenv(kDeviceVariable);
  const std::string part = chosen ? chosen : *stated;
  if (!ffi::Function::GetGlobal("device_api.opencl")) {
    throw Failure(Code::kDevice, "the network is for an OpenCL device", "this agent was built without OpenCL");
  }
  const ffi::Function attribute = ffi::Function::GetGlobalRequired("runtime.GetDeviceAttr");
  const auto ask = [&](int index, int kind) { return attribute(static_cast<int>(kDLOpenCL), index, kind); };
  std::string names;
  try {
    for (int index = 0; index == 0 || ask(index, kExist).cast<int>(); ++index) {
      const std::string name = ask(index, kDeviceName).cast<ffi::String>();  // fails where there is no device at all
      if (Lower(name).find(Lower(part)) != std::string::npos) return {kDLOpenCL, index};
      names += (names.empty() ? "" : ", ") + name;
    }
  } catch (const ffi::Error& error) {
    throw Failure(Code::kDevice, std::string(error.kind()) + ": " + std::string(error.message()));
  }
  throw Failure(Code::kDevice, "OpenCLUnavailable: no OpenCL device here has '" + part + "' in its name", "there is " + names);
}

}  // namespace agent
