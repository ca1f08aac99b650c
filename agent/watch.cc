#include "watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "failure.h"

namespace agent {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGCHLD};
// Of one wait: a `time_t` of 32 bits takes no more than 68 years.
constexpr std::chrono::hours kLongest{1};

volatile sig_atomic_t asked = 0;

}  // namespace

void RememberInterruption() {
  struct sigaction action{};
  action.sa_handler = [](int) { asked = 1; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int each : {SIGINT, SIGTERM}) sigaction(each, &action, nullptr);
}

bool Interrupted() { return asked != 0; }

Watch::Watch(int heartbeat_s) : heartbeat_(heartbeat_s) {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int each : kSignals) sigaddset(&blocked, each);
  sigprocmask(SIG_BLOCK, &blocked, &before_);
  RememberInterruption();
  signal(SIGCHLD, [](int) {});  // it only interrupts the wait
}

bool Watch::Wait(std::vector<pollfd>& descriptors, Clock::time_point deadline) {
  const bool expects_signs = heartbeat_.count() > 0;
  if (expects_signs) {
    deadline = std::min(deadline, last_sign_ + heartbeat_);
    descriptors.push_back({STDIN_FILENO, POLLIN, 0});
  }
  const Clock::duration left = std::clamp<Clock::duration>(deadline - Clock::now(), {}, kLongest);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds);
  const timespec time{static_cast<time_t>(seconds.count()), static_cast<long>(nanoseconds.count())};
  sigset_t open = before_;
  for (const int each : kSignals) sigdelset(&open, each);
  int ready = ppoll(descriptors.data(), descriptors.size(), &time, &open);
  if (ready < 0) {  // interrupted: what `revents` says is old
    for (pollfd& each : descriptors) each.revents = 0;
    ready = 0;
  }
  if (expects_signs) {
    if (descriptors.back().revents != 0) {
      --ready;
      ReadSigns();
    }
    descriptors.pop_back();
    if (Clock::now() >= last_sign_ + heartbeat_) throw Ended{};
  }
  if (Interrupted()) throw Ended{};
  return ready > 0;
}

bool Watch::Wait(int descriptor, short events, Clock::time_point deadline) {
  std::vector<pollfd> one{{descriptor, events, 0}};
  return Wait(one, deadline);
}

void Watch::Sleep(std::chrono::milliseconds time) {
  std::vector<pollfd> none;
  const Clock::time_point deadline = Clock::now() + time;
  while (Clock::now() < deadline) Wait(none, deadline);
}

void Watch::Leave() const {
  for (const int each : kSignals) signal(each, SIG_DFL);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
}

void Watch::ReadSigns() {
  char signs[256];
  const ssize_t count = read(STDIN_FILENO, signs, sizeof signs);
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) throw Ended{};
  last_sign_ = Clock::now();
}

void Log(const std::string& text) {
  const std::string line = "agent: " + Printable(text) + "\n";
  pollfd output{STDERR_FILENO, POLLOUT, 0};
  // A pipe that can be written takes a page at once.
  const bool taken = poll(&output, 1, 0) > 0 && write(STDERR_FILENO, line.data(), line.size()) >= 0;
  static_cast<void>(taken);
}

}  // namespace agent
