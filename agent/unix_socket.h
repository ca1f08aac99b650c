// Sockets of one machine: a service's own, by a path that its owner alone may use, and that of systemd.
#pragma once

#include <chrono>
#include <optional>
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

// What a service tells systemd, by the datagrams of sd_notify(3), without its library.
class Notifier {
 public:
  // Takes $NOTIFY_SOCKET and $WATCHDOG_USEC; without them nobody is told anything.
  Notifier();
  // Such as READY=1. A message that cannot be sent is not a failure.
  void Tell(const std::string& state) const;
  // How often WATCHDOG=1 is expected at least; nothing if it is not.
  std::optional<std::chrono::milliseconds> watchdog() const { return watchdog_; }

 private:
  Descriptor socket_;
  std::string address_;  // of a socket; a null byte begins the name of one that has no file
  std::optional<std::chrono::milliseconds> watchdog_;
};

}  // namespace agent
