#include "opencl/api.h"

#include <dlfcn.h>
#include <tvm/ffi/error.h>

namespace agent::opencl {
namespace {

struct Known {
  cl_int code;
  const char* name;
  const char* kind;
};

constexpr Known kKnown[] = {
    {-1, "CL_DEVICE_NOT_FOUND", kUnavailable},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR", kUnavailable},
    {-2, "CL_DEVICE_NOT_AVAILABLE", kLost},
    {-33, "CL_INVALID_DEVICE", kLost},
    {-34, "CL_INVALID_CONTEXT", kLost},
    {-36, "CL_INVALID_COMMAND_QUEUE", kLost},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", kLost},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE", kMemory},
    {-5, "CL_OUT_OF_RESOURCES", kMemory},
    {-6, "CL_OUT_OF_HOST_MEMORY", kMemory},
    {-61, "CL_INVALID_BUFFER_SIZE", kMemory},
    {-11, "CL_BUILD_PROGRAM_FAILURE", kBuild},
    {-53, "CL_INVALID_WORK_DIMENSION", kLaunch},
    {-54, "CL_INVALID_WORK_GROUP_SIZE", kLaunch},
    {-55, "CL_INVALID_WORK_ITEM_SIZE", kLaunch},
};

const Known* Find(cl_int code) {
  for (const Known& known : kKnown) {
    if (known.code == code) return &known;
  }
  return nullptr;
}

// OpenCL's loader, under the name that programs are linked to and the one that some boards have only.
constexpr const char* kNames[] = {"libOpenCL.so.1", "libOpenCL.so"};

void* Open() {
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  Fail(kUnavailable, std::string("there is no OpenCL here: ") + dlerror());
}

template <typename Function>
void Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr) Fail(kUnavailable, std::string("the OpenCL here is older than 1.2: it has no ") + name);
}

}  // namespace

const Api& Library() {
  static const Api api = [] {
    void* library = Open();
    Api found;
#define EDGEDEPLOY_OPENCL_FIND(name, result, parameters) Find(library, #name, &found.name);
    EDGEDEPLOY_OPENCL_FUNCTIONS(EDGEDEPLOY_OPENCL_FIND)
#undef EDGEDEPLOY_OPENCL_FIND
    return found;
  }();
  return api;
}

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
