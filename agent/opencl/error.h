// What can go wrong with OpenCL, as errors of TVM's that carry one of these kinds.
#pragma once

#include <string>

#include "opencl/api.h"

namespace agent::opencl {

// There is no library, no driver, no device, or not that one.
inline constexpr const char* kUnavailable = "OpenCLUnavailable";
// A program does not compile for a device; the message holds the compiler's log.
inline constexpr const char* kBuild = "OpenCLBuildError";
// A kernel asks for more work-items, or more local memory, than the device has for one work-group.
inline constexpr const char* kLaunch = "OpenCLLaunchError";
// The device's memory is exhausted, or a single piece of it is larger than the device gives.
inline constexpr const char* kMemory = "OpenCLMemoryError";
// The device failed while it was working, went away, or does not answer.
inline constexpr const char* kLost = "OpenCLDeviceLost";
// Anything else.
inline constexpr const char* kOther = "OpenCLError";

[[noreturn]] void Fail(const char* kind, const std::string& message);

// A code of OpenCL by name and number, and the kind of error that it is.
std::string Named(cl_int code);
const char* KindOf(cl_int code);

// Fails unless the code is CL_SUCCESS; `what` is what was being done, as "copy to the device".
void Check(cl_int code, const std::string& what);

}  // namespace agent::opencl
