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

// Its output is read by at most one other thread than the owner's.
class Child : public BufferedReader {
 public:
  // Starts `arguments[0]`, a path. Failure(kInput) if it cannot be started.
  explicit Child(std::vector<std::string> arguments);
  // Ends it, and what it started in its process group.
  ~Child() override;
  Child(const Child&) = delete;

  // From now on nothing more is read: the output ends.
  void Stop();
  // The last lines that it wrote to standard error, as one.
  std::string Messages() const;

 protected:
  ssize_t Receive(void* data, size_t size) override;

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
