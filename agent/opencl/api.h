// The part of OpenCL's C interface that is used, written from its specification, version 1.2 ("The OpenCL
// Specification", Khronos OpenCL Working Group; numbers of constants: appendix to the API's registry, `cl.xml`).
// Boards' code is compiled on machines without OpenCL's headers, and runs on ones without its library: that is opened
// when it is first needed. What can go wrong are errors of TVM's that carry one of the kinds below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace agent::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;

using cl_platform_id = struct Platform_*;
using cl_device_id = struct Device_*;
using cl_context = struct Context_*;
using cl_command_queue = struct CommandQueue_*;
using cl_mem = struct Memory_*;
using cl_program = struct Program_*;
using cl_kernel = struct Kernel_*;
using cl_event = struct Event_*;
using cl_context_properties = intptr_t;

inline constexpr cl_int CL_COMPLETE = 0;
inline constexpr cl_int CL_SUCCESS = 0;
inline constexpr cl_int CL_DEVICE_NOT_FOUND = -1;
inline constexpr cl_int CL_PLATFORM_NOT_FOUND_KHR = -1001;

inline constexpr cl_bool CL_FALSE = 0;

inline constexpr cl_uint CL_PLATFORM_VERSION = 0x0901;
inline constexpr cl_uint CL_PLATFORM_NAME = 0x0902;

inline constexpr cl_bitfield CL_DEVICE_TYPE_CPU = 1 << 1;
inline constexpr cl_bitfield CL_DEVICE_TYPE_GPU = 1 << 2;
inline constexpr cl_bitfield CL_DEVICE_TYPE_ALL = 0xFFFFFFFF;

inline constexpr cl_uint CL_DEVICE_TYPE = 0x1000;
inline constexpr cl_uint CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002;
inline constexpr cl_uint CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004;
inline constexpr cl_uint CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005;
inline constexpr cl_uint CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C;
inline constexpr cl_uint CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010;
inline constexpr cl_uint CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E;
inline constexpr cl_uint CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F;
inline constexpr cl_uint CL_DEVICE_LOCAL_MEM_SIZE = 0x1023;
inline constexpr cl_uint CL_DEVICE_NAME = 0x102B;
inline constexpr cl_uint CL_DEVICE_VENDOR = 0x102C;
inline constexpr cl_uint CL_DRIVER_VERSION = 0x102D;
inline constexpr cl_uint CL_DEVICE_VERSION = 0x102F;

inline constexpr cl_bitfield CL_QUEUE_PROFILING_ENABLE = 1 << 1;
inline constexpr cl_bitfield CL_MEM_READ_WRITE = 1 << 0;
inline constexpr cl_uint CL_MEM_SIZE = 0x1102;

inline constexpr cl_uint CL_PROGRAM_BINARY_SIZES = 0x1165;
inline constexpr cl_uint CL_PROGRAM_BINARIES = 0x1166;
inline constexpr cl_uint CL_PROGRAM_BUILD_LOG = 0x1183;
inline constexpr cl_uint CL_KERNEL_WORK_GROUP_SIZE = 0x11B0;
inline constexpr cl_uint CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2;

inline constexpr cl_uint CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3;
inline constexpr cl_uint CL_PROFILING_COMMAND_START = 0x1282;
inline constexpr cl_uint CL_PROFILING_COMMAND_END = 0x1283;

// Name, result, and parameters of each function.
#define EDGEDEPLOY_OPENCL_FUNCTIONS(FUNCTION)                                                                     \
  FUNCTION(clGetPlatformIDs, cl_int, (cl_uint, cl_platform_id*, cl_uint*))                                        \
  FUNCTION(clGetPlatformInfo, cl_int, (cl_platform_id, cl_uint, size_t, void*, size_t*))                          \
  FUNCTION(clGetDeviceIDs, cl_int, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*))               \
  FUNCTION(clGetDeviceInfo, cl_int, (cl_device_id, cl_uint, size_t, void*, size_t*))                              \
  FUNCTION(clCreateContext, cl_context,                                                                           \
           (const cl_context_properties*, cl_uint, const cl_device_id*,                                           \
            void (*)(const char*, const void*, size_t, void*), void*, cl_int*))                                   \
  FUNCTION(clCreateCommandQueue, cl_command_queue, (cl_context, cl_device_id, cl_bitfield, cl_int*))              \
  FUNCTION(clReleaseCommandQueue, cl_int, (cl_command_queue))                                                     \
  FUNCTION(clCreateBuffer, cl_mem, (cl_context, cl_bitfield, size_t, void*, cl_int*))                             \
  FUNCTION(clReleaseMemObject, cl_int, (cl_mem))                                                                  \
  FUNCTION(clGetMemObjectInfo, cl_int, (cl_mem, cl_uint, size_t, void*, size_t*))                                 \
  FUNCTION(clEnqueueReadBuffer, cl_int,                                                                           \
           (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))       \
  FUNCTION(clEnqueueWriteBuffer, cl_int,                                                                          \
           (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*)) \
  FUNCTION(clEnqueueCopyBuffer, cl_int,                                                                           \
           (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))       \
  FUNCTION(clEnqueueMarkerWithWaitList, cl_int, (cl_command_queue, cl_uint, const cl_event*, cl_event*))          \
  FUNCTION(clEnqueueBarrierWithWaitList, cl_int, (cl_command_queue, cl_uint, const cl_event*, cl_event*))         \
  FUNCTION(clFlush, cl_int, (cl_command_queue))                                                                   \
  FUNCTION(clReleaseEvent, cl_int, (cl_event))                                                                    \
  FUNCTION(clGetEventInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                                   \
  FUNCTION(clGetEventProfilingInfo, cl_int, (cl_event, cl_uint, size_t, void*, size_t*))                          \
  FUNCTION(clCreateProgramWithSource, cl_program, (cl_context, cl_uint, const char**, const size_t*, cl_int*))    \
  FUNCTION(clCreateProgramWithBinary, cl_program,                                                                 \
           (cl_context, cl_uint, const cl_device_id*, const size_t*, const unsigned char**, cl_int*, cl_int*))    \
  FUNCTION(clBuildProgram, cl_int,                                                                                \
           (cl_program, cl_uint, const cl_device_id*, const char*, void (*)(cl_program, void*), void*))           \
  FUNCTION(clGetProgramBuildInfo, cl_int, (cl_program, cl_device_id, cl_uint, size_t, void*, size_t*))            \
  FUNCTION(clGetProgramInfo, cl_int, (cl_program, cl_uint, size_t, void*, size_t*))                               \
  FUNCTION(clReleaseProgram, cl_int, (cl_program))                                                                \
  FUNCTION(clCreateKernel, cl_kernel, (cl_program, const char*, cl_int*))                                         \
  FUNCTION(clReleaseKernel, cl_int, (cl_kernel))                                                                  \
  FUNCTION(clSetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void*))                                     \
  FUNCTION(clGetKernelWorkGroupInfo, cl_int, (cl_kernel, cl_device_id, cl_uint, size_t, void*, size_t*))          \
  FUNCTION(clEnqueueNDRangeKernel, cl_int,                                                                        \
           (cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,           \
            const cl_event*, cl_event*))

// The library's functions.
struct Api {
#define EDGEDEPLOY_OPENCL_DECLARE(name, result, parameters) result(*name) parameters;
  EDGEDEPLOY_OPENCL_FUNCTIONS(EDGEDEPLOY_OPENCL_DECLARE)
#undef EDGEDEPLOY_OPENCL_DECLARE
};

// Opens the library at the first call. Fails with kUnavailable, each time, where there is none.
const Api& Library();

// OpenCL's library, its driver or the device that was asked for is missing.
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
