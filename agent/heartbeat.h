// Signs of life on standard input, from whoever started the agent through a connection that may break.
#pragma once

#include <chrono>

namespace agent {

class Heartbeat {
 public:
  // Anything that comes is a sign; 0 expects none, and standard input is left alone.
  explicit Heartbeat(int seconds);
  // Whether standard input has ended, or brought nothing for that long. Does not wait.
  bool Stopped();

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::seconds limit_;
  Clock::time_point last_ = Clock::now();
  bool ended_ = false;
};

}  // namespace agent
