// A program that the agent starts and reads from; it ends with its owner, and with the agent however that ends.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "files.h"

namespace agent {

// Where a program lies in $PATH; empty if it does not.
std::string FindProgram(const std::string& name);

class Child {
 public:
  // Starts `arguments[0]`, a path. Failure(kInput) if it cannot be started.
  explicit Child(std::vector<std::string> arguments);
  // Ends it, and what it started in its process group.
  ~Child();
  Child(const Child&) = delete;

  // Reads at most `size` bytes of its output; none at its end, or once `Stop` was called. May be called by one other
  // thread than the owner's.
  size_t Read(void* data, size_t size);
  // From now on nothing more is read: `Read` returns.
  void Stop();
  // The last lines that it wrote to standard error, as one.
  std::string Messages() const;

 private:
  void KeepMessages();

  pid_t pid_ = -1;
  Descriptor output_;
  Descriptor errors_;
  Descriptor stop_read_;
  Descriptor stop_write_;
  std::string messages_;
};

}  // namespace agent
