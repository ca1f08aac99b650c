// Whether the process was asked to end, and the one place where servers wait: every wait ends when they are to end.
#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

namespace agent {

// From now on SIGINT and SIGTERM are remembered, and end no wait but what asks here.
void RememberInterruption();
bool Interrupted();

using Clock = std::chrono::steady_clock;

// Thrown where the server is to end: SIGINT or SIGTERM came, or the signs of life on standard input stopped.
struct Ended {};

// From its construction on, SIGINT, SIGTERM and SIGCHLD arrive only within `Wait`.
class Watch {
 public:
  // Before there are other threads. Anything that comes on standard input is a sign of life. It is to come within
  // `heartbeat_s` seconds of the last; 0 expects none, and standard input is left alone.
  explicit Watch(int heartbeat_s);
  // Waits until a descriptor is ready, a child has ended, or it is `deadline`. Returns whether a descriptor is ready,
  // as `revents` says. Throws Ended.
  bool Wait(std::vector<pollfd>& descriptors, Clock::time_point deadline);
  // The same for one descriptor.
  bool Wait(int descriptor, short events, Clock::time_point deadline);
  void Sleep(std::chrono::milliseconds time);
  // For a child: signals are as they were before, and signs of life are not its own to read.
  void Leave() const;

 private:
  void ReadSigns();

  sigset_t before_;
  std::chrono::seconds heartbeat_;
  Clock::time_point last_sign_ = Clock::now();
};

// A line on standard error; it is left out where it would have to wait for who reads them.
void Log(const std::string& text);

}  // namespace agent
