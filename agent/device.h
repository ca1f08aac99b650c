// The device that a network runs on: the processor, or an OpenCL device.
#pragma once

#include <dlpack/dlpack.h>

#include <optional>
#include <string>

namespace agent {

inline constexpr DLDevice kCpu{kDLCPU, 0};

// The OpenCL device with `stated` in its name, in any case, graphics processors before others; the processor for none.
// EDGEDEPLOY_OPENCL_DEVICE goes before what is stated.
// Failure(kDevice) if there is no such device, or if this agent was built without OpenCL.
DLDevice FindDevice(const std::optional<std::string>& stated);

// What an OpenCL device calls itself.
std::string DeviceName(DLDevice device);

}  // namespace agent
