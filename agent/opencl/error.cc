#include "opencl/error.h"

#include <tvm/ffi/error.h>

namespace agent::opencl {
namespace {

struct Known {
  cl_int code;
  const char* name;
  const char* kind;
};

constexpr Known kKnown[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND", kUnavailable},
    {CL_PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR", kUnavailable},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE", kLost},
    {CL_INVALID_DEVICE, "CL_INVALID_DEVICE", kLost},
    {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT", kLost},
    {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE", kLost},
    {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", kLost},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE", kMemory},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES", kMemory},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY", kMemory},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE", kMemory},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE", kBuild},
    {CL_INVALID_WORK_DIMENSION, "CL_INVALID_WORK_DIMENSION", kLaunch},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE", kLaunch},
    {CL_INVALID_WORK_ITEM_SIZE, "CL_INVALID_WORK_ITEM_SIZE", kLaunch},
};

const Known* Find(cl_int code) {
  for (const Known& known : kKnown) {
    if (known.code == code) return &known;
  }
  return nullptr;
}

}  // namespace

void Fail(const char* kind, const std::string& message) { throw tvm::ffi::Error(kind, message, ""); }

std::string Named(cl_int code) {
  const Known* known = Find(code);
  return known ? std::string(known->name) + " (" + std::to_string(code) + ")"
               : "OpenCL's error " + std::to_string(code);
}

const char* KindOf(cl_int code) {
  const Known* known = Find(code);
  return known ? known->kind : kOther;
}

void Check(cl_int code, const std::string& what) {
  if (code != CL_SUCCESS) Fail(KindOf(code), "cannot " + what + ": " + Named(code));
}

}  // namespace agent::opencl
