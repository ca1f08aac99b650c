// What a service tells systemd, by the datagrams of sd_notify(3), without its library.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "files.h"

namespace agent {

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
