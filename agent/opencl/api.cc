#include "opencl/api.h"

#include <dlfcn.h>

#include "opencl/error.h"

namespace agent::opencl {
namespace {

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

Api Load() {
  void* library = Open();
  Api api;
#define EDGEDEPLOY_OPENCL_FIND(name, result, parameters) Find(library, #name, &api.name);
  EDGEDEPLOY_OPENCL_FUNCTIONS(EDGEDEPLOY_OPENCL_FIND)
#undef EDGEDEPLOY_OPENCL_FIND
  return api;
}

}  // namespace

const Api& Library() {
  static const Api api = Load();
  return api;
}

}  // namespace agent::opencl
