#include "replies.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

namespace agent {

Descriptor TakeStandardOutput() {
  Descriptor output(dup(STDOUT_FILENO));
  if (!output || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    throw Failure(Code::kOutput, "cannot write to standard output", SystemError());
  }
  return output;
}

void EndWithReader(int replies) {
  // Of its own, and open until the process ends: readers wait for that before they go.
  std::thread([output = dup(replies)] {
    pollfd reader{output, 0, 0};
    while (poll(&reader, 1, -1) <= 0) continue;
    std::fprintf(stderr, "agent: the reader of the replies is gone\n");
    _exit(static_cast<int>(Code::kOutput));
  }).detach();
}

}  // namespace agent
