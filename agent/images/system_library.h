// A library of the board's own system, opened when it is first needed and never closed.
#pragma once

#include <dlfcn.h>

#include <initializer_list>
#include <string>

#include "failure.h"

namespace agent {

class SystemLibrary {
 public:
  // Opens the first of `names` that is there. Failure(kInput) if none is: `what` cannot be done then, and Debian's
  // `package` brings the library.
  SystemLibrary(std::initializer_list<const char*> names, const std::string& what, const std::string& package) {
    for (const char* name : names) {
      name_ = name;
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
    }
    throw Failure(Code::kInput, what + " needs a library that this board lacks",
                  "there is no " + std::string(*names.begin()) + "; sudo apt install " + package);
  }

  // The name that it was opened under.
  const std::string& name() const { return name_; }
  // Failure(kInput) if it has no such function.
  template <typename Function>
  void Find(const char* symbol, Function** function) const {
    *function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
    if (!*function) throw Failure(Code::kInput, "this board's " + name_ + " is another library", dlerror());
  }

 private:
  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace agent
