// Sockets of one machine, by a path that their owner alone may use.
#pragma once

#include <string>

#include "files.h"

namespace agent {

// Listens at a path, with mode 0600, and removes that at its end.
class UnixListener {
 public:
  // A socket at which nobody answers any more is replaced. Failure(kUsage) for a path that is too long, Failure(kOther)
  // if another program answers there, if something else lies there, or its folder cannot be written.
  explicit UnixListener(std::string path);
  ~UnixListener() { Close(); }

  int get() const { return listener_.get(); }
  // The next waiting client, if any.
  Descriptor Accept() const;
  // No client comes any more.
  void Close();

 private:
  std::string path_;
  Descriptor listener_;
};

}  // namespace agent
