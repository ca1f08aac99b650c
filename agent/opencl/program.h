// Programs of a device: compiled from source once, then taken from a folder.
#pragma once

#include <string>

#include "opencl/device.h"

namespace agent::opencl {

// Compiles a source for a device, or takes what an earlier process compiled from the same source for the same device
// and driver. What is kept lies in the folder that EDGEDEPLOY_OPENCL_CACHE names, by default `edgedeploy/opencl` in the
// user's cache folder; where there is none, and where it cannot be written, nothing is kept.
// Fails with kBuild and the compiler's log if the source does not compile.
Program BuildProgram(Device& device, const std::string& source);

}  // namespace agent::opencl
