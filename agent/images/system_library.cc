#include "images/system_library.h"

#include <dlfcn.h>

#include "failure.h"

namespace agent {

SystemLibrary::SystemLibrary(std::initializer_list<const char*> names, const std::string& what,
                             const std::string& package) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) continue;
    name_ = name;
    return;
  }
  throw Failure(Code::kInput, what + " needs a library that this board lacks",
                "there is no " + std::string(*names.begin()) + "; sudo apt install " + package);
}

void* SystemLibrary::Symbol(const char* symbol) const {
  void* found = dlsym(handle_, symbol);
  if (found == nullptr) throw Failure(Code::kInput, "this board's " + name_ + " is another library", dlerror());
  return found;
}

}  // namespace agent
