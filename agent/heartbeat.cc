#include "heartbeat.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace agent {

Heartbeat::Heartbeat(int seconds) : limit_(seconds) {}

bool Heartbeat::Stopped() {
  if (limit_.count() == 0) return false;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (!ended_ && poll(&input, 1, 0) > 0) {
    char signs[256];
    const ssize_t count = read(STDIN_FILENO, signs, sizeof signs);
    if (count < 0 && errno == EINTR) continue;
    ended_ = count <= 0;
    last_ = Clock::now();
  }
  return ended_ || Clock::now() - last_ > limit_;
}

}  // namespace agent
