// A library of the board's own system, opened when it is first needed and never closed.
#pragma once

#include <initializer_list>
#include <string>

namespace agent {

class SystemLibrary {
 public:
  // Opens the first of `names` that is there. Failure(kInput) if none is: `what` cannot be done then, and Debian's
  // `package` brings the library.
  SystemLibrary(std::initializer_list<const char*> names, const std::string& what, const std::string& package);

  // The name that it was opened under.
  const std::string& name() const { return name_; }
  // Failure(kInput) if it has no such function.
  template <typename Function>
  void Find(const char* symbol, Function** function) const {
    *function = reinterpret_cast<Function*>(Symbol(symbol));
  }

 private:
  void* Symbol(const char* symbol) const;

  std::string name_;
  void* handle_ = nullptr;
};

}  // namespace agent
